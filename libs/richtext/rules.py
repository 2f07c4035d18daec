"""What actions.md asks of blocks a client sent: prompts of definitions and triggers, blocks of a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libs.richtext.parse import markdown_to_blocks
from libs.richtext.render import blocks_to_markdown


class BlocksInvalid(Exception):
    """A prompt or blocks value breaks a rule. `message` is the text of the 400 answer."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def validate_blocks(value: object, label: str) -> list[Any]:
    """`value` itself, every node of it checked; unknown keys and block types are kept as they are.

    Raises BlocksInvalid: `<label> must be blocks`, `<label> blocks are invalid`, `<label> block children are invalid`.
    """
    if not isinstance(value, list):
        raise BlocksInvalid(f"{label} must be blocks")
    pending: list[Any] = list(reversed(value))
    while pending:
        node = pending.pop()
        block = node.get("block") if isinstance(node, dict) else None
        if not isinstance(block, dict) or not _is_name(block.get("id")) or not _is_name(block.get("type")):
            raise BlocksInvalid(f"{label} blocks are invalid")
        children = node.get("children")
        if children is not None and not isinstance(children, list):
            raise BlocksInvalid(f"{label} block children are invalid")
        pending.extend(reversed(children or ()))
    return value


def resolve_prompt(value: object, label: str, max_bytes: int, new_id: Callable[[], str]) -> list[Any]:
    """Blocks of a prompt sent as markdown text or as blocks (`PromptValue`); blocks come back as they were sent.

    `max_bytes` limits the UTF-8 length of the prompt as markdown. Raises BlocksInvalid with the messages of
    `validate_blocks`, `<label> is required` when the markdown is blank, `<label> is too large`.
    """
    if isinstance(value, str):
        text = value.strip()
        if not text:
            raise BlocksInvalid(f"{label} is required")
        if _size(text) > max_bytes:
            raise BlocksInvalid(f"{label} is too large")
        blocks = markdown_to_blocks(text, new_id)
    else:
        blocks = validate_blocks(value, label)
    markdown = blocks_to_markdown(blocks)
    if not markdown.strip():
        raise BlocksInvalid(f"{label} is required")
    if _size(markdown) > max_bytes:
        raise BlocksInvalid(f"{label} is too large")
    return blocks


def message_markdown(text: str, blocks: object) -> str:
    """`content` of a message event: `blocks` as markdown when they are well formed and say something, else `text`."""
    try:
        return blocks_to_markdown(validate_blocks(blocks, "Message")) or text
    except BlocksInvalid:
        return text


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
