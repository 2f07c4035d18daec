"""Marked text as inline markdown.

What to escape is found by trying: the plain form first, the escaped form where that would be read back as something
else. So a prompt full of underscores, brackets and angle brackets stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

from libs.richtext.dialect import SPACER
from libs.richtext.spans import EMBED_PLACEHOLDER, Inline, Span, normal_spans

_HARMLESS = re.compile(r"(?![#>+\-=\d\s])[^\\`*_\[\]<~|$\n\t]*")
_SPECIAL = re.compile(r"[\\`*_\[\]<~|]|!\Z")
_LIKELY_SPECIAL = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])|`|\*(?!\s)|(?<!\s)\*|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~"
    r"|<(?=/?u>|!--|[a-zA-Z][\w+.\-]*[:@])|\](?=\()|!(?=\[)|!\Z"
)
_STARTS = re.compile(r"^(?:[#>+\-]|\$\$|\d+(?=[.)]))", re.MULTILINE)
_LIKELY_STARTS = re.compile(
    r"^(?:#{1,6}(?=\s|$)|>|[+\-](?=\s|-|$)|\*(?=\s)|\$\$|\d{1,9}(?=[.)](?:\s|$)))", re.MULTILINE
)
_AUTOLINK = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]{1,31}:[^<>\x00-\x20]*")
_BARE_URL = re.compile(r"[^\s<>()\\\x00-\x1f\x7f]+")
_ENTITY = re.compile(r"&(?=[a-zA-Z#][a-zA-Z0-9]{1,31};)")
_TICKS = re.compile(r"`+")
_MARKERS = {"Bold": ("**", "**"), "Italic": ("*", "*"), "Strike": ("~~", "~~"), "Underline": ("<u>", "</u>")}
_NEEDS_SPACER = ("Bold", "Italic", "Strike")


class Style(NamedTuple):
    """How hard a rendering works to be read back as what it was."""

    special: re.Pattern[str] | None = None
    line_start: re.Pattern[str] | None = None
    spaced: bool = False


FULL = Style(_SPECIAL, _STARTS)
STYLES = (Style(), Style(_LIKELY_SPECIAL, _LIKELY_STARTS), FULL, FULL._replace(spaced=True))


def tidy(content: Inline, *, blank_lines: bool = False) -> Inline:
    """`content` without what a paragraph cannot hold: blanks at the edges of lines, emphasis over blanks, and, unless
    `blank_lines`, lines with nothing on them."""
    text, spans = content.text, content.spans
    coded = bytearray(len(text))
    for span in spans:
        if span.type == "Code":
            coded[span.start : span.end] = b"\1" * (span.end - span.start)
    cuts = _blanks(text, coded, blank_lines)
    if cuts:
        kept = [*zip([0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(text)], strict=True)]
        text = "".join(text[start:end] for start, end in kept)
        coded = bytearray().join(coded[start:end] for start, end in kept)
        spans = _moved(spans, cuts)
    # Markdown has an embed only by itself; over words of its own it is a link.
    spans = [
        s._replace(type="Link") if s.type == "Embed" and text[s.start : s.end] != EMBED_PLACEHOLDER else s
        for s in spans
    ]
    return content._replace(text=text, spans=normal_spans(_trimmed(s, text, coded) for s in spans))


def _blanks(text: str, coded: bytearray, blank_lines: bool) -> list[tuple[int, int]]:
    first, last = _inner(text, coded, 0, len(text), None, None)
    cuts = [(0, first)]
    at = first
    for line in text[first:last].split("\n"):
        end = at + len(line)
        left, right = _inner(text, coded, at, end, " \t", " ")
        if left == end and not blank_lines and at > first:
            cuts.append((at - 1, end))
        else:
            cuts.extend(((at, left), (right, end)))
        at = end + 1
    cuts.append((last, len(text)))
    return [cut for cut in cuts if cut[0] < cut[1]]


def _inner(text: str, coded: bytearray, start: int, end: int, before: str | None, after: str | None) -> tuple[int, int]:
    """The part of `text[start:end]` between blanks: the characters of `before` and `after`, all blanks when None."""
    while start < end and not coded[start] and (text[start].isspace() if before is None else text[start] in before):
        start += 1
    while start < end and not coded[end - 1] and (text[end - 1].isspace() if after is None else text[end - 1] in after):
        end -= 1
    return start, end


def _moved(spans: list[Span], cuts: list[tuple[int, int]]) -> list[Span]:
    moved: dict[int, int] = {}
    at = removed = 0
    for point in sorted({p for s in spans for p in (s.start, s.end)}):
        while at < len(cuts) and cuts[at][1] <= point:
            removed += cuts[at][1] - cuts[at][0]
            at += 1
        inside = max(point - cuts[at][0], 0) if at < len(cuts) else 0
        moved[point] = point - removed - inside
    return [s._replace(start=moved[s.start], end=moved[s.end]) for s in spans]


def _trimmed(span: Span, text: str, coded: bytearray) -> Span:
    if span.type not in _NEEDS_SPACER:
        return span
    start, end = _inner(text, coded, span.start, span.end, None, None)
    return span._replace(start=start, end=end)


def is_harmless(content: Inline) -> bool:
    """Whether the plain form of `content` surely reads back as itself."""
    return not content.spans and bool(_HARMLESS.fullmatch(content.text))


def destination(url: str) -> str:
    """`url` as the target of a markdown link."""
    url = _ENTITY.sub(r"\\&", url.replace("\\", "\\\\")) if "\\" in url or "&" in url else url
    if _BARE_URL.fullmatch(url.replace("\\&", "")) or url == "":
        return url
    return "<" + re.sub(r"[<>]", r"\\\g<0>", url.replace("\r", "%0D").replace("\n", "%0A")) + ">"


def escape(text: str, style: Style) -> str:
    """Text outside of code as markdown of `style`; what is special only at the start of a line is left."""
    return style.special.sub(r"\\\g<0>", text) if style.special else text


def escape_lines(markdown: str, style: Style) -> str:
    """Inline markdown with what would start a block at the start of its lines escaped."""
    if not style.line_start:
        return markdown
    return style.line_start.sub(lambda m: m[0] + "\\" if m[0].isdigit() else "\\" + m[0], markdown)


def render(content: Inline, style: Style, labels: Mapping[str, str] | None = None) -> str:
    """`content` as inline markdown. `labels` names what inline embeds point to, for reading rather than parsing."""
    return _Writer(content, style, labels or {}).write()


class _Writer:
    def __init__(self, content: Inline, style: Style, labels: Mapping[str, str]) -> None:
        self._content = content
        self._style = style
        self._labels = labels
        self._out: list[str] = []
        self._open: list[Span] = []

    def write(self) -> str:
        text, spans = self._content.text, self._content.spans
        edges = sorted({0, len(text), *(p for s in spans for p in (s.start, s.end))})
        upcoming = list(reversed(spans))
        active: list[Span] = []
        for start, end in pairwise(edges):
            while upcoming and upcoming[-1].start <= start:
                active.append(upcoming.pop())
            active = [s for s in active if s.end > start]
            self._segment(text[start:end], active)
        self._close_until(lambda _: False)
        return "".join(self._out)

    def _segment(self, text: str, active: list[Span]) -> None:
        code = any(s.type == "Code" for s in active)
        wanted = [s for s in active if s.type not in ("Code", "Embed")]
        embed = next((s for s in active if s.type == "Embed"), None)
        bare = None if code else next((s for s in active if s.type == "Link" and _is_bare(s, text)), None)
        if bare:
            wanted.remove(bare)
        self._close_until(lambda span: span in wanted)
        # What ends last opens first, so marks nest wherever they can.
        for span in sorted((s for s in wanted if s not in self._open), key=lambda s: (-s.end, s.type)):
            self._push(span)
        if embed:
            self._out.append(self._embed(embed))
        elif bare:
            self._out.append(f"<{text}>")
        elif code:
            self._out.append(_code(text))
        else:
            self._out.append(escape(text, self._style))

    def _close_until(self, wanted: Callable[[Span], bool]) -> None:
        keep = 0
        while keep < len(self._open) and wanted(self._open[keep]):
            keep += 1
        while len(self._open) > keep:
            span = self._open.pop()
            self._out.append(f"]({destination(span.link)})" if span.type == "Link" else self._marker(span.type, 1))

    def _push(self, span: Span) -> None:
        self._open.append(span)
        self._out.append("[" if span.type == "Link" else self._marker(span.type, 0))

    def _marker(self, kind: str, side: int) -> str:
        marker = _MARKERS[kind][side]
        return f"{SPACER}{marker}{SPACER}" if self._style.spaced and kind in _NEEDS_SPACER else marker

    def _embed(self, span: Span) -> str:
        label = self._labels.get(span.link)
        if label or not _AUTOLINK.fullmatch(span.link):
            return f"[{escape(label or span.link, FULL)}]({destination(span.link)})"
        return f"<{span.link}>"


def _is_bare(span: Span, text: str) -> bool:
    return span.link == text and not text.startswith("hm://") and bool(_AUTOLINK.fullmatch(text))


def _code(text: str) -> str:
    text = text.replace("\n", " ")
    runs = {len(run) for run in _TICKS.findall(text)}
    fence = "`" * next(n for n in range(1, len(runs) + 2) if n not in runs)
    edges = (text[0], text[-1])
    padded = "`" in edges or (edges == (" ", " ") and text.strip(" ") != "")
    return f"{fence} {text} {fence}" if padded else f"{fence}{text}{fence}"
