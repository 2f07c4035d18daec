"""Text with marked spans: what an `annotations` list means, and what inline markdown tokens mean.

Offsets count Unicode code points, which is also how Python indexes text. A span carries one mark over one range; spans
of the same mark never touch, and at most one link or inline embed covers a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from markdown_it.token import Token

EMBED_PLACEHOLDER = "\ufffc"
"""The one character of text an inline embed stands on."""

_PLAIN = ("Bold", "Italic", "Strike", "Underline", "Code")
_LINKED = ("Link", "Embed")
_OPEN = {"strong_open": "Bold", "em_open": "Italic", "s_open": "Strike", "u_open": "Underline"}
_CLOSE = {"strong_close": "Bold", "em_close": "Italic", "s_close": "Strike", "u_close": "Underline"}
_BREAK_TAG = re.compile(r"<br\s*/?>", re.IGNORECASE)


class Span(NamedTuple):
    """One mark over `text[start:end]`; `link` is empty for marks without one."""

    start: int
    end: int
    type: str
    link: str = ""


class Inline(NamedTuple):
    """Marked text. `block_id` and `column_id` are what id comments beside it said."""

    text: str
    spans: list[Span]
    block_id: str = ""
    column_id: str = ""


def annotations_of(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Spans as an `annotations` list: one entry a span."""
    return [
        {"type": s.type, "starts": [s.start], "ends": [s.end], **({"link": s.link} if s.link else {})} for s in spans
    ]


def spans_of(annotations: object, length: int) -> list[Span]:
    """Spans an `annotations` value marks in a text of `length` code points; malformed parts mark nothing."""
    found: list[Span] = []
    for annotation in annotations if isinstance(annotations, list) else []:
        if not isinstance(annotation, dict):
            continue
        kind, starts, ends = annotation.get("type"), annotation.get("starts"), annotation.get("ends")
        url = annotation.get("link")
        url = url if kind in _LINKED and isinstance(url, str) else ""
        if not isinstance(starts, list) or not isinstance(ends, list) or (kind not in _PLAIN and not url):
            continue
        for start, end in zip(starts, ends, strict=False):
            if type(start) is int and type(end) is int and 0 <= start < end:
                found.append(Span(start, min(end, length), str(kind), url))
    return normal_spans(found)


def normal_spans(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, empty ones dropped, touching ones of a mark joined; of two links the later one wins."""
    result: list[Span] = []
    by_mark: dict[str, list[Span]] = {}
    for span in sorted(s for s in spans if s.start < s.end):
        by_mark.setdefault("Link" if span.type in _LINKED else span.type, []).append(span)
    for mark, marked in by_mark.items():
        joined: list[Span] = []
        for span in marked:
            last = joined[-1] if joined else None
            if last and span.start <= last.end and span[2:] == last[2:] and span.type != "Embed":
                joined[-1] = last._replace(end=max(last.end, span.end))
                continue
            if last and mark == "Link" and span.start < last.end:
                joined[-1] = last._replace(end=span.start)
            joined.append(span)
        result.extend(s for s in joined if s.start < s.end)
    return sorted(result)


def inline_of(tokens: Sequence[Token], *, cell: bool = False) -> Inline:
    """Marked text of inline tokens. In a table cell `<br>` is a line break."""
    builder = _InlineBuilder(cell)
    paired = _paired_underlines(tokens)
    for index, token in enumerate(tokens):
        builder.add(token, literal=token.type in ("u_open", "u_close") and index not in paired)
    return builder.result()


def _paired_underlines(tokens: Sequence[Token]) -> set[int]:
    paired: set[int] = set()
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.type == "u_open":
            opened.append(index)
        elif token.type == "u_close" and opened:
            paired.update((opened.pop(), index))
    return paired


class _InlineBuilder:
    def __init__(self, cell: bool) -> None:
        self._cell = cell
        self._parts: list[str] = []
        self._length = 0
        self._opened: dict[str, list[int]] = {}
        self._link: tuple[int, str] | None = None
        self._spans: list[Span] = []
        self._in_embed = False
        self._ids: dict[str, str] = {}

    def add(self, token: Token, *, literal: bool) -> None:
        kind = token.type
        if self._in_embed:
            self._in_embed = kind != "link_close"
        elif literal or kind == "text_special":
            self._write(token.content)
        elif kind == "text":
            self._write(_BREAK_TAG.sub("\n", token.content) if self._cell else token.content)
        elif kind in ("softbreak", "hardbreak"):
            self._write("\n")
        elif kind == "code_inline":
            self._spans.append(Span(self._length, self._length + len(token.content), "Code"))
            self._write(token.content)
        elif kind in _OPEN:
            self._opened.setdefault(_OPEN[kind], []).append(self._length)
        elif kind in _CLOSE:
            self._spans.append(Span(self._opened[_CLOSE[kind]].pop(), self._length, _CLOSE[kind]))
        elif kind == "link_open":
            self._open_link(str(token.attrs.get("href", "")), auto=token.info == "auto")
        elif kind == "link_close":
            self._close_link()
        elif kind == "image":
            self._image(token)
        elif kind in ("block_id", "column_id"):
            self._ids.setdefault(kind, token.content)

    def result(self) -> Inline:
        return Inline("".join(self._parts), normal_spans(self._spans), **self._ids)

    def _write(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _open_link(self, url: str, *, auto: bool) -> None:
        # CommonMark lets an autolink stand in the text of a link; the outer link counts.
        if self._link is not None:
            self._opened.setdefault("Link", []).append(self._length)
        elif auto and url.startswith("hm://"):
            self._spans.append(Span(self._length, self._length + 1, "Embed", url))
            self._write(EMBED_PLACEHOLDER)
            self._in_embed = True
        else:
            self._link = (self._length, url)

    def _close_link(self) -> None:
        if self._opened.get("Link"):
            self._opened["Link"].pop()
        elif self._link is not None:
            start, url = self._link
            self._link = None
            if start == self._length:
                self._write(url)
            if url:
                self._spans.append(Span(start, self._length, "Link", url))

    def _image(self, token: Token) -> None:
        # Blocks have no inline image: its alternative text links to it, so the address is kept.
        url = str(token.attrs.get("src", ""))
        start = self._length
        self._write(inline_of(token.children or []).text or url)
        if self._link is None and url:
            self._spans.append(Span(start, self._length, "Link", url))
