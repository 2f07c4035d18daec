"""Conversion between markdown text and Seed Hypermedia blocks (`AgentPromptBlock` of agents.cddl).

Blocks are open documents, so they are plain dicts in and out. Nothing here does I/O: a caller that wants embeds
resolved collects `embed_links`, loads them, and passes what it found to `blocks_to_markdown`.
"""

from libs.richtext.parse import markdown_to_blocks
from libs.richtext.render import EmbedLinks, blocks_to_markdown, embed_links
from libs.richtext.rules import BlocksInvalid, message_markdown, resolve_prompt, validate_blocks

__all__ = [
    "BlocksInvalid",
    "EmbedLinks",
    "blocks_to_markdown",
    "embed_links",
    "markdown_to_blocks",
    "message_markdown",
    "resolve_prompt",
    "validate_blocks",
]
