"""The markdown dialect: CommonMark with GFM tables and strikethrough, math blocks, underline tags and id comments.

What would lose or rewrite text of a prompt is off: HTML and entities stay text, reference definitions stay text, and a
line of dashes under a paragraph stays a rule rather than making a heading of the paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit, getLine, table
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline, image, link
from markdown_it.token import Token

MAX_NESTING = 60
"""Levels of lists and quotes markdown-it follows; it drops what is deeper, see `too_deep`."""

SPACER = "<!-- -->"
"""Parsed as nothing. Put beside an emphasis marker it makes the marker count where CommonMark would not let it."""

ID = r"[A-Za-z0-9_-]+"
_COMMENT = re.compile(rf"<!--\s*(?:(id|col):({ID})\s*)?-->")
_NEWLINES = re.compile(r"\r\n?")
_REFUSED_LINK = re.compile(r"\s*(?:javascript|vbscript|data):", re.IGNORECASE)
_DATA_IMAGE = re.compile(r"\s*data:image/(?:gif|png|jpeg|webp);", re.IGNORECASE)
_MATH_FENCE = re.compile(rf"\$\$[ \t]*+(?:<!--\s*+id:({ID})\s*+-->[ \t]*+)?")
_UNDERLINE = re.compile(r"</?u>")


def parse_tokens(text: str, *, ids: bool = False) -> list[Token]:
    """Block tokens of `text`, inline tokens as their children. `ids` makes tokens of `<!-- id:… -->` comments."""
    return _parser().parse(text, {"ids": ids})


def too_deep(tokens: Sequence[Token]) -> bool:
    """Whether markdown-it met its nesting limit, and so left text out of `tokens`."""
    containers = ("blockquote_open", "bullet_list_open", "ordered_list_open", "list_item_open")
    return any(t.level >= MAX_NESTING - 1 and t.type in containers for t in tokens)


@cache
def _parser() -> MarkdownIt:
    md = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    md.enable(["table", "strikethrough"])
    md.disable(["reference", "lheading", "entity", "html_block", "html_inline", "text_join"])
    md.core.ruler.at("normalize", _normalize)
    md.block.ruler.before("fence", "math", _math, {"alt": ["paragraph", "blockquote", "list"]})
    md.block.ruler.at("table", _table, {"alt": ["paragraph"]})
    md.inline.ruler.at("link", _link)
    md.inline.ruler.at("image", _image)
    md.inline.ruler.before("autolink", "comment", _comment)
    md.inline.ruler.before("autolink", "underline", _underline)
    md.normalizeLink = lambda url: url
    md.normalizeLinkText = lambda link: link
    md.validateLink = _is_link
    return md


def _is_link(url: str) -> bool:
    return not _REFUSED_LINK.match(url) or bool(_DATA_IMAGE.match(url))


def _normalize(state: StateCore) -> None:
    state.src = _NEWLINES.sub("\n", state.src)


def _math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    line = getLine(state, start)
    if not line.startswith("$$") or state.is_code_block(start):
        return False
    fence = _MATH_FENCE.fullmatch(line)
    whole = line.rstrip(" \t").removeprefix("$$").removesuffix("$$").strip(" \t")
    if fence:
        close = _math_end(state, start, end)
        if close is None:
            return False
        content = state.getLines(start + 1, close, state.sCount[start], False)
        after = close + 1
    elif whole and line.rstrip(" \t").endswith("$$") and "$$" not in whole:
        content, after = whole, start + 1
    else:
        return False
    if silent:
        return True
    token = state.push("math_block", "math", 0)
    token.content = content
    token.map = [start, after]
    token.info = (fence[1] or "") if fence else ""
    state.line = after
    return True


def _math_end(state: StateBlock, start: int, end: int) -> int | None:
    # Remembering where the search failed keeps a text of nothing but opening fences linear.
    if start >= state.env.get("math_open", state.lineMax + 1) and end <= state.env["math_end"]:
        return None
    for line in range(start + 1, end):
        if state.sCount[line] < state.blkIndent and not state.isEmpty(line):
            break
        if getLine(state, line).rstrip(" \t") == "$$" and not state.is_code_block(line):
            return line
    else:
        state.env["math_open"], state.env["math_end"] = start, end
    return None


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if not table(state, start, end, True):
        return False
    columns = _cells(state, start)
    for line in range(start + 2, end):
        if state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            break
        # GFM drops cells beyond the header's; as a paragraph they are kept.
        if _cells(state, line) > columns:
            return False
    return True if silent else table(state, start, end, silent)


def _cells(state: StateBlock, line: int) -> int:
    cells = escapedSplit(getLine(state, line).strip())
    return len(cells) - (cells[0] == "") - (len(cells) > 1 and cells[-1] == "")


def _link(state: StateInline, silent: bool) -> bool:
    return state.src[state.pos] == "[" and _affordable(state, state.pos) and link(state, silent)


def _image(state: StateInline, silent: bool) -> bool:
    if not state.src.startswith("![", state.pos):
        return False
    return _affordable(state, state.pos + 1) and image(state, silent)


def _affordable(state: StateInline, bracket: int) -> bool:
    """Whether a label may be searched for: a text of unmatched brackets would make the search quadratic."""
    src = state.src
    if state.env.get("label_src") is not src:
        state.env.update(label_src=src, label_budget=16 * len(src) + 1024, label_last=src.rfind("]("))
    if bracket >= state.env["label_last"]:
        return False
    if state.env["label_budget"] <= 0:
        return False
    label_end = state.md.helpers.parseLinkLabel(state, bracket, False)
    state.env["label_budget"] -= (label_end if label_end >= 0 else state.posMax) - bracket
    return label_end >= 0 and src.startswith("](", label_end)


def _comment(state: StateInline, silent: bool) -> bool:
    if not state.src.startswith("<!--", state.pos):
        return False
    found = _COMMENT.match(state.src, state.pos)
    if not found or (found[1] and not state.env.get("ids")) or (not found[1] and not _is_spacer(state, found)):
        return False
    if not silent and found[1]:
        state.pending = state.pending.rstrip(" \t")
        token = state.push("block_id" if found[1] == "id" else "column_id", "", 0)
        token.content = found[2]
    state.pos = found.end()
    return True


def _is_spacer(state: StateInline, found: re.Match[str]) -> bool:
    beside = state.src[found.start() - 1 : found.start()] + state.src[found.end() : found.end() + 1]
    return found[0] == SPACER and ("*" in beside or "~" in beside)


def _underline(state: StateInline, silent: bool) -> bool:
    found = _UNDERLINE.match(state.src, state.pos)
    if not found:
        return False
    if not silent:
        token = state.push("u_close" if found[0][1] == "/" else "u_open", "", 0)
        token.content = found[0]
    state.pos = found.end()
    return True
