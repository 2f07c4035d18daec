"""Blocks to markdown text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from libs.richtext.dialect import ID
from libs.richtext.inline import FULL, STYLES, Style, destination, escape, escape_lines, is_harmless, render, tidy
from libs.richtext.parse import markdown_to_blocks
from libs.richtext.spans import Inline, annotations_of, spans_of

MAX_DEPTH = 64
"""Levels of children written as structure; deeper blocks follow as plain siblings."""

MAX_TRIED = 8192
"""Code points of a paragraph up to which every style is tried; a longer one is plain or fully escaped."""

_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_ID = re.compile(ID)
_TICKS = re.compile(r"`{3,}|~{3,}")
_BULLETS = {"Unordered": ("-", "*", "+"), "Ordered": (".", ")")}
_RULE_LINE = re.compile(r"([-*])(?: *\1){2,} *")
_LINK_LABELS = {"Video": "Video", "WebEmbed": "Web Embed", "Button": "Button", "File": "file", "Nostr": "Nostr"}


class EmbedLinks(NamedTuple):
    """Links blocks embed, each once, in order: by Embed blocks and by Embed annotations in text."""

    blocks: list[str]
    inline: list[str]


class _Chunk(NamedTuple):
    text: str
    group: str = ""
    marker: str = ""
    tight: bool = False


class _Place(NamedTuple):
    depth: int = 0
    headings: int = 0


def blocks_to_markdown(
    blocks: object,
    *,
    ids: bool = False,
    embeds: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    media_url: Callable[[str], str] | None = None,
) -> str:
    """Markdown of blocks (`AgentPromptBlock`), without blanks at its ends; `""` when they say nothing.

    Unknown block types are their text; what is malformed is left out, and nothing is raised. Headings are as deep as
    they have headings above them. Text is escaped only where it would be read as markup.

    `ids` adds `<!-- id:… -->` to the first line of each block. `embeds` maps the link of an Embed block to markdown put
    in its place, `labels` the link of an inline embed to its name (else it is `<link>`). `media_url` rewrites the links
    of Image, Video and File blocks.
    """
    renderer = _Renderer(ids=ids, embeds=embeds or {}, labels=labels or {}, media_url=media_url or (lambda url: url))
    return _joined(renderer.chunks(_nodes(blocks), _Place()), tight=False).strip()


def embed_links(blocks: object) -> EmbedLinks:
    """What a caller has to load to render `blocks` with its embeds resolved."""
    found = EmbedLinks([], [])
    seen: set[tuple[str, str]] = set()
    for node in _preorder(_nodes(blocks)):
        block = node["block"]
        link = block.get("link")
        links = [("block", link)] if block.get("type") == "Embed" and isinstance(link, str) and link else []
        text = _text(block)
        links += [("inline", s.link) for s in spans_of(block.get("annotations"), len(text)) if s.type == "Embed"]
        for kind, url in links:
            if (kind, url) not in seen:
                seen.add((kind, url))
                (found.blocks if kind == "block" else found.inline).append(url)
    return found


def _nodes(value: object) -> list[dict[str, Any]]:
    nodes = value if isinstance(value, list) else []
    return [n for n in nodes if isinstance(n, dict) and isinstance(n.get("block"), dict)]


def _preorder(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        found.append(node)
        pending.extend(reversed(_nodes(node.get("children"))))
    return found


def _text(block: dict[str, Any]) -> str:
    text = block.get("text")
    return text.replace("\r\n", " \n").replace("\r", "\n") if isinstance(text, str) else ""


def _string(block: dict[str, Any], key: str) -> str:
    value = block.get(key)
    return value if isinstance(value, str) else ""


def _attributes(block: dict[str, Any]) -> dict[str, Any]:
    attributes = block.get("attributes")
    return attributes if isinstance(attributes, dict) else {}


def _joined(chunks: Sequence[_Chunk], *, tight: bool) -> str:
    out: list[str] = []
    for index, chunk in enumerate(chunks):
        if index:
            out.append("\n" if tight and chunk.tight and not chunks[index - 1].group else "\n\n")
        out.append(chunk.text)
    return "".join(out)


class _Renderer:
    def __init__(
        self, *, ids: bool, embeds: Mapping[str, str], labels: Mapping[str, str], media_url: Callable[[str], str]
    ) -> None:
        self._ids = ids
        self._embeds = embeds
        self._labels = labels
        self._media_url = media_url

    def chunks(self, nodes: Sequence[dict[str, Any]], place: _Place) -> list[_Chunk]:
        if place.depth > MAX_DEPTH:
            leaves = [self._leaf(node["block"], place) for node in _preorder(nodes)]
            return [_Chunk(text) for text in leaves if text]
        out: list[_Chunk] = []
        for node in nodes:
            self._node(node, place, out)
        return out

    def _node(self, node: dict[str, Any], place: _Place, out: list[_Chunk]) -> None:
        block, children = node["block"], _nodes(node.get("children"))
        kind = block.get("type")
        if kind == "Table":
            out.extend(_Chunk(text) for text in self._table(block, children) if text)
            return
        group = _attributes(block).get("childrenType")
        grouped = bool(children) and group in ("Unordered", "Ordered", "Blockquote")
        text = self._leaf(block, place)
        if text:
            out.append(_Chunk(text))
        elif grouped and self._ids:
            out.append(_Chunk(self._id_comment(block)))
        below = _Place(place.depth + 1, place.headings + (kind == "Heading"))
        if not grouped:
            out.extend(self.chunks(children, below))
        elif group == "Blockquote":
            quoted = _joined(self.chunks(children, _Place(below.depth)), tight=False)
            out.append(_Chunk(_prefixed(quoted, "> ", "> "), "Blockquote"))
        else:
            out.append(self._list(str(group), _attributes(block).get("start"), children, below.depth, out))

    def _list(
        self, group: str, start: object, items: Sequence[dict[str, Any]], depth: int, before: Sequence[_Chunk]
    ) -> _Chunk:
        first = start if type(start) is int and 0 <= start < 10**8 else 1
        bodies = [_joined(self.chunks([item], _Place(depth)), tight=True) for item in items]
        # Lists one after another would be read as one, did they not differ in their marker.
        taken = before[-1].marker if before and before[-1].group == group else ""
        markers = [m for m in _BULLETS[group] if m != taken and not any(_is_rule(m, body) for body in bodies)]
        marker = markers[0] if markers else _BULLETS[group][-1]
        lines: list[str] = []
        for number, body in enumerate(bodies, first):
            bullet = f"{marker} " if group == "Unordered" else f"{number}{marker} "
            lines.append(_prefixed(body, bullet, " " * len(bullet)))
        starts_blank = lines[0].rstrip() in (marker, f"{first}{marker}")
        return _Chunk("\n".join(lines), group, marker, tight=first == 1 and not starts_blank)

    def _leaf(self, block: dict[str, Any], place: _Place) -> str:
        kind = block.get("type")
        link = _string(block, "link")
        if kind == "Code":
            return self._code(block)
        if kind == "Math":
            return f"$$ {self._id_comment(block)}".rstrip() + f"\n{_text(block)}\n$$"
        if kind == "Heading":
            return self._marked(self._heading(block, place), block)
        if kind == "Image" and link:
            alt = Inline(_one_line(_text(block)), [])
            shown = self._verified(block, alt, f"![%s]({destination(self._media_url(link))})")
            return self._marked(shown, block)
        if kind == "Embed" and link:
            shown = self._embeds.get(link)
            return self._marked(shown if shown is not None else f"> [Embed: {link}]({destination(link)})", block)
        if kind == "Query":
            return self._marked("<!-- Query block -->", block)
        if isinstance(kind, str) and kind in _LINK_LABELS and link:
            return self._marked(self._labelled(kind, block, link), block)
        return self._marked(self._paragraphs(block), block)

    def _heading(self, block: dict[str, Any], place: _Place) -> str:
        text = _text(block)
        content = Inline(text.replace("\n", " "), spans_of(block.get("annotations"), len(text)))
        hashes = "#" * min(place.headings + 1, 6)
        return self._verified(block, content, f"{hashes} %s").rstrip()

    def _paragraphs(self, block: dict[str, Any]) -> str:
        text = _text(block)
        spans = spans_of(block.get("annotations"), len(text))
        parts: list[str] = []
        start = 0
        for end, after in [*((m.start(), m.end()) for m in _BLANK_LINES.finditer(text)), (len(text), len(text))]:
            inside = [s for s in spans if s.start < end and s.end > start] if spans else []
            moved = [s._replace(start=max(s.start - start, 0), end=min(s.end, end) - start) for s in inside]
            parts.append(self._verified(block, Inline(text[start:end], moved), "%s"))
            start = after
        return "\n\n".join(part for part in parts if part)

    def _verified(self, block: dict[str, Any], content: Inline, template: str) -> str:
        """`content` in `template`, in the plainest style that reads back as the block it is of."""
        content = tidy(content)
        kind = block.get("type") if block.get("type") in ("Heading", "Image") else "Paragraph"
        if is_harmless(content):
            return template.replace("%s", content.text, 1)
        for style in STYLES if len(content.text) <= MAX_TRIED else STYLES[:1]:
            candidate = template.replace("%s", _styled(content, style, {}, str(kind)), 1)
            if _reads_back(candidate, str(kind), content):
                break
        else:
            style = FULL
        return template.replace("%s", _styled(content, style, self._labels, str(kind)), 1)

    def _code(self, block: dict[str, Any]) -> str:
        text = _text(block)
        language = _one_line(_string(_attributes(block), "language")).strip()
        tick = "~" if "`" in language else "`"
        longest = max((len(run) for run in _TICKS.findall(text) if run[0] == tick), default=2)
        fence = tick * max(longest + 1, 3)
        opener = f"{fence}{' ' if language.startswith(tick) else ''}{language} {self._id_comment(block)}".rstrip()
        return f"{opener}\n{text}\n{fence}" if text else f"{opener}\n{fence}"

    def _labelled(self, kind: str, block: dict[str, Any], link: str) -> str:
        name = _string(_attributes(block), "name") if kind == "File" else ""
        label = _one_line(name or _text(block) or _LINK_LABELS[kind])
        url = self._media_url(link) if kind in ("Video", "File") else link
        return f"[{escape(label, FULL)}]({destination(url)})"

    def _table(self, block: dict[str, Any], children: Sequence[dict[str, Any]]) -> list[str]:
        columns = [_string(c["block"], "id") for c in children if c["block"].get("type") == "TableColumn"]
        rows = [c for c in children if c["block"].get("type") == "TableRow"]
        if not columns:
            return [self._leaf(node["block"], _Place()) for node in _preorder(children)]
        headed = bool(rows) and _attributes(rows[0]["block"]).get("isHeader") is True
        header = self._cells(rows[0], columns) if headed else [""] * len(columns)
        if self._ids:
            header = [f"{c} <!-- col:{i} -->" if _ID.fullmatch(i) else c for c, i in zip(header, columns, strict=True)]
            header[-1] += f" {self._id_comment(rows[0]['block'])}" if headed else ""
        lines = [self._id_comment(block)] if self._ids else []
        lines += [_row(header), _row(["---"] * len(columns))]
        for row in rows[headed:]:
            cells = self._cells(row, columns)
            cells[-1] = f"{cells[-1]} {self._id_comment(row['block'])}".strip()
            lines.append(_row(cells))
        return ["\n".join(line for line in lines if line)]

    def _cells(self, row: dict[str, Any], columns: Sequence[str]) -> list[str]:
        cells: dict[str, str] = {}
        for cell in _nodes(row.get("children")):
            column = _attributes(cell["block"]).get("columnId")
            if isinstance(column, str) and column not in cells:
                cells[column] = self._cell(cell["block"])
        return [cells.get(column, "") for column in columns]

    def _cell(self, block: dict[str, Any]) -> str:
        text = _text(block)
        content = tidy(Inline(text, spans_of(block.get("annotations"), len(text))), blank_lines=True)
        if is_harmless(content):
            return content.text
        for style in STYLES:
            if _cell_reads_back(_in_cell(render(content, style)), content):
                break
        else:
            style = FULL
        return _in_cell(render(content, style, self._labels))

    def _id_comment(self, block: dict[str, Any]) -> str:
        block_id = _string(block, "id")
        return f"<!-- id:{block_id} -->" if self._ids and _ID.fullmatch(block_id) else ""

    def _marked(self, markdown: str, block: dict[str, Any]) -> str:
        comment = self._id_comment(block)
        if not markdown or not comment:
            return markdown
        first, newline, rest = markdown.partition("\n")
        return f"{first} {comment}{newline}{rest}"


def _styled(content: Inline, style: Style, labels: Mapping[str, str], kind: str) -> str:
    markdown = render(content, style, labels)
    if kind == "Heading":
        return markdown.replace("#", "\\#") if style.special else markdown
    return escape_lines(markdown, style)


def _reads_back(markdown: str, kind: str, content: Inline) -> bool:
    # Alone it opens no math, but beside other blocks it might.
    if any(line.strip(" \t") == "$$" for line in markdown.split("\n")):
        return False
    nodes = markdown_to_blocks(markdown, lambda: "check")
    if len(nodes) != 1 or nodes[0].get("children"):
        return False
    block = nodes[0]["block"]
    spans = spans_of(block["annotations"], len(block["text"]))
    return block["type"] == kind and block["text"] == content.text and spans == content.spans


def _cell_reads_back(markdown: str, content: Inline) -> bool:
    nodes = markdown_to_blocks(f"| x | {markdown} |\n| --- | --- |", lambda: "check")
    if len(nodes) != 1 or nodes[0]["block"]["type"] != "Table":
        return False
    columns = [c for c in nodes[0]["children"] if c["block"]["type"] == "TableColumn"]
    cell = nodes[0]["children"][-1]["children"][-1]["block"]
    return len(columns) == 2 and cell["text"] == content.text and cell["annotations"] == annotations_of(content.spans)


def _is_rule(marker: str, body: str) -> bool:
    return bool(_RULE_LINE.fullmatch(f"{marker} {body.partition(chr(10))[0]}"))


def _in_cell(markdown: str) -> str:
    return markdown.replace("|", "\\|").replace("\n", "<br>")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def _prefixed(text: str, first: str, rest: str) -> str:
    lines = text.split("\n")
    head = (first + lines[0]).rstrip(" ") if not lines[0] else first + lines[0]
    return "\n".join([head, *((rest + line if line else rest.rstrip()) for line in lines[1:])])
