"""Markdown text to blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from markdown_it.token import Token

from libs.richtext.dialect import ID, parse_tokens, too_deep
from libs.richtext.inline import tidy
from libs.richtext.spans import Inline, annotations_of, inline_of

_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_FENCE_ID = re.compile(rf"<!--\s*+id:({ID})\s*+-->")
_RULE = re.compile(r"([-*_])\1{2,}")
_UNSEEN = ("softbreak", "hardbreak", "block_id")
_EMBED_LABEL = "Embed: "
_LISTS = {"bullet_list_open": "Unordered", "ordered_list_open": "Ordered", "blockquote_open": "Blockquote"}

Node = dict[str, Any]


def markdown_to_blocks(text: str, new_id: Callable[[], str], *, keep_ids: bool = False) -> list[Node]:
    """Blocks (`AgentPromptBlock`) of markdown text.

    Headings own what follows them. Lists and quotes are the children of the paragraph or heading right before them
    (`attributes.childrenType` Unordered, Ordered or Blockquote), else of an empty Paragraph; an ordered list not
    starting at 1 keeps its number in `attributes.start`. Tables are Table, TableColumn and TableRow blocks with
    Paragraph cells. Every block has `text`, `annotations` and `attributes`; offsets of annotations are code points.

    `new_id` gives the ids. With `keep_ids`, `<!-- id:… -->` comments as `blocks_to_markdown(ids=True)` writes them name
    the blocks they stand by, an id used twice only the first.
    """
    tokens = parse_tokens(text, ids=keep_ids)
    make = _Factory(new_id)
    if too_deep(tokens):
        return _plain_paragraphs(text, make)
    return _Siblings(_Cursor(tokens), make).read(None)


def _plain_paragraphs(text: str, make: _Factory) -> list[Node]:
    # What nests deeper than the tokenizer follows is no document anybody wrote: its text is kept, its structure is not.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    parts = _BLANK_LINES.split("\n".join(line.strip(" \t") for line in lines))
    return [make.paragraph(Inline(part.strip(), [])) for part in parts if part.strip()]


class _Factory:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._used: set[str] = set()

    def node(self, kind: str, content: Inline, *, block_id: str = "", link: str = "", **attributes: Any) -> Node:
        block: dict[str, Any] = {
            "id": self._id(block_id or content.block_id),
            "type": kind,
            "text": content.text,
            "annotations": annotations_of(content.spans),
            "attributes": attributes,
        }
        if link:
            block["link"] = link
        return {"block": block}

    def paragraph(self, content: Inline, **attributes: Any) -> Node:
        return self.node("Paragraph", content, **attributes)

    def container(self, children: list[Node], block_id: str = "", **attributes: Any) -> Node:
        node = self.node("Paragraph", Inline("", []), block_id=block_id, **attributes)
        node["children"] = children
        return node

    def _id(self, kept: str) -> str:
        chosen = kept if kept and kept not in self._used else self._new_id()
        self._used.add(chosen)
        return chosen


class _Cursor:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def next(self) -> Token | None:
        if self._at == len(self._tokens):
            return None
        self._at += 1
        return self._tokens[self._at - 1]

    def take(self) -> Token:
        token = self.next()
        assert token is not None, "tokens of a container are closed by a token"
        return token


class _Siblings:
    """The blocks of one container: the document, a quote or a list item."""

    def __init__(self, cursor: _Cursor, make: _Factory) -> None:
        self._cursor = cursor
        self._make = make
        self._nodes: list[Node] = []
        self._headings: list[tuple[int, Node]] = []
        self._container_id = ""

    def read(self, close: str | None) -> list[Node]:
        """Blocks up to the token of type `close`, or to the end."""
        while (token := self._cursor.next()) is not None and token.type != close:
            container_id, self._container_id = self._container_id, ""
            self._block(token, container_id)
        return self._nodes

    def _block(self, token: Token, container_id: str) -> None:
        kind = token.type
        if kind == "paragraph_open":
            self._paragraph(self._inline("paragraph_close"))
        elif kind == "heading_open":
            self._heading(int(token.tag[1:]), self._inline("heading_close"))
        elif kind in ("fence", "code_block"):
            self._code(token)
        elif kind == "math_block":
            self._add(self._make.node("Math", Inline(token.content, []), block_id=token.info))
        elif kind == "hr":
            # markdown-it counts one marker too many.
            self._add(self._make.paragraph(Inline(token.markup[:-1], [])))
        elif kind == "blockquote_open":
            children = _Siblings(self._cursor, self._make).read("blockquote_close")
            self._quote(children, container_id)
        elif kind in _LISTS:
            items = list(self._items(kind.replace("_open", "_close")))
            start = int(token.attrs.get("start", 1)) if kind == "ordered_list_open" else 1
            self._group(items, container_id, childrenType=_LISTS[kind], **({} if start == 1 else {"start": start}))
        elif kind == "table_open":
            self._add(_table(self._cursor, self._make, container_id))

    def _inline(self, close: str) -> list[Token]:
        children: list[Token] = []
        while (token := self._cursor.take()).type != close:
            children.extend(token.children or [])
        return children

    def _items(self, close: str) -> list[Node]:
        items: list[Node] = []
        while self._cursor.take().type != close:
            items.append(_item(_Siblings(self._cursor, self._make).read("list_item_close"), self._make))
        return items

    def _paragraph(self, tokens: list[Token]) -> None:
        shown = [t for t in tokens if t.type not in _UNSEEN and (t.type != "text" or t.content.strip())]
        if shown and all(t.type == "image" and t.attrs.get("src") for t in shown):
            block_id = next((t.content for t in tokens if t.type == "block_id"), "")
            for image in shown:
                alt = tidy(Inline(inline_of(image.children or []).text.replace("\n", " "), []))
                self._add(self._make.node("Image", alt, block_id=block_id, link=str(image.attrs["src"])))
            return
        content = tidy(inline_of(tokens))
        if content.text:
            self._add(self._make.paragraph(content))
        elif content.block_id:
            self._container_id = content.block_id

    def _heading(self, level: int, tokens: list[Token]) -> None:
        node = self._make.node("Heading", tidy(inline_of(tokens)), childrenType="Group")
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        self._add(node)
        self._headings.append((level, node))

    def _code(self, token: Token) -> None:
        info = token.info.strip()
        comment = info.rfind("<!--")
        found = _FENCE_ID.fullmatch(info, comment) if comment >= 0 else None
        language = info[:comment].rstrip() if found else info
        text = token.content.removesuffix("\n")
        attributes = {"language": language} if language else {}
        self._add(self._make.node("Code", Inline(text, []), block_id=found[1] if found else "", **attributes))

    def _quote(self, children: list[Node], container_id: str) -> None:
        embed = _embed_link(children)
        if embed:
            children[0]["block"].update(type="Embed", text="", annotations=[], link=embed)
            self._add(children[0])
        elif children:
            self._group(children, container_id, childrenType="Blockquote")

    def _group(self, children: list[Node], container_id: str, **attributes: Any) -> None:
        # An empty paragraph is made only when there is no text block the group can belong to.
        owner = None if container_id else self._group_owner()
        if owner is None:
            self._add(self._make.container(children, container_id, **attributes))
        else:
            owner["block"]["attributes"].update(attributes)
            owner["children"] = children

    def _group_owner(self) -> Node | None:
        parent = self._headings[-1][1] if self._headings else None
        siblings = self._nodes if parent is None else parent.get("children", [])
        if not siblings:
            return parent
        last = siblings[-1]
        in_list = parent is not None and parent["block"]["attributes"]["childrenType"] != "Group"
        text = last["block"]["text"] if last["block"]["type"] == "Paragraph" and "children" not in last else ""
        return last if text and not in_list and not _RULE.fullmatch(text) else None

    def _add(self, node: Node) -> None:
        if not self._headings:
            self._nodes.append(node)
            return
        parent = self._headings[-1][1]
        if parent["block"]["attributes"]["childrenType"] != "Group":
            _wrap_group(parent, self._make)
        parent.setdefault("children", []).append(node)


def _wrap_group(node: Node, make: _Factory) -> None:
    """Moves the list or quote that is all of a node's children into a container, so other children can follow it."""
    attributes = node["block"]["attributes"]
    moved = {key: attributes.pop(key) for key in ("childrenType", "start") if key in attributes}
    node["children"] = [make.container(node["children"], **moved)]
    attributes["childrenType"] = "Group"


def _item(nodes: list[Node], make: _Factory) -> Node:
    """The one block of a list item: its first paragraph, the rest of the item its children."""
    if not nodes:
        return make.paragraph(Inline("", []))
    first, rest = nodes[0], nodes[1:]
    if not rest:
        return first
    if first["block"]["type"] != "Paragraph" or not first["block"]["text"]:
        return make.container(nodes, childrenType="Group")
    if "children" in first:
        _wrap_group(first, make)
    first["block"]["attributes"]["childrenType"] = "Group"
    first.setdefault("children", []).extend(rest)
    return first


def _embed_link(quoted: list[Node]) -> str:
    """The link of an Embed block as `blocks_to_markdown` writes one: a quote of nothing but its labelled link."""
    if len(quoted) != 1 or quoted[0].get("children"):
        return ""
    block = quoted[0]["block"]
    text, annotations = block["text"].rstrip(), block["annotations"]
    if len(annotations) != 1 or annotations[0]["type"] != "Link":
        return ""
    mark = annotations[0]
    whole = mark["starts"] == [0] and mark["ends"] == [len(text)]
    return mark["link"] if whole and text == _EMBED_LABEL + mark["link"] else ""


def _table(cursor: _Cursor, make: _Factory, container_id: str) -> Node:
    rows: list[list[Inline]] = []
    while (token := cursor.take()).type != "table_close":
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(tidy(inline_of(token.children or [], cell=True), blank_lines=True))
    header, body = rows[0], rows[1:]
    columns = [make.node("TableColumn", Inline("", []), block_id=cell.column_id) for cell in header]
    column_ids = [column["block"]["id"] for column in columns]
    # GFM needs a header row, blocks do not: a blank one stands for a table without.
    head = [_row(header, column_ids, make, isHeader=True)] if any(cell.text for cell in header) else []
    table = make.node("Table", Inline("", []), block_id=container_id)
    table["children"] = columns + head + [_row(row, column_ids, make) for row in body]
    return table


def _row(cells: list[Inline], column_ids: list[str], make: _Factory, **attributes: Any) -> Node:
    row_id = next((cell.block_id for cell in cells if cell.block_id), "")
    row = make.node("TableRow", Inline("", []), block_id=row_id, **attributes)
    row["children"] = [make.paragraph(cell, columnId=column) for cell, column in zip(cells, column_ids, strict=True)]
    return row
