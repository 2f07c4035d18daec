"""Markdown of blocks with what they embed put in its place (runtime.md, section 3; triggers.md, section 8)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from libs.hypermedia.server import AskFailed
from libs.richtext import blocks_to_markdown, embed_links

Ask = Callable[[str, Mapping[str, str]], Awaitable[Any]]
"""What the HM server answers under a key to parameters (HypermediaServer.ask). Raises AskFailed."""

DEPTH: Final = 2
_RESOURCES: Final = 32
_BYTES: Final = 32 * 1024
_SECONDS: Final = 5.0
_BLOCK: Final = re.compile(r"[A-Za-z0-9_-]+")


async def resolved_markdown(blocks: object, ask: Ask, *, depth: int = DEPTH) -> str:
    """Markdown of `blocks`, with documents, comments and single blocks that they embed, `depth` levels deep.

    What cannot be had within 5 s, is beyond 32 resources or 32 KiB, or embeds itself stays a link. Never raises.
    """
    resolver = _Resolver(ask)
    try:
        async with asyncio.timeout(_SECONDS):
            return await resolver.markdown(blocks, depth, ())
    except TimeoutError:
        return resolver.known(blocks)


class _Resolver:
    def __init__(self, ask: Ask) -> None:
        self._ask, self._bytes_left = ask, _BYTES
        self._resources: dict[str, dict[str, Any]] = {}
        self._embeds: dict[str, str] = {}
        self._labels: dict[str, str] = {}

    async def markdown(self, blocks: object, depth: int, above: tuple[str, ...]) -> str:
        links = embed_links(blocks)
        if depth > 0:
            for link in links.blocks:
                if link not in self._embeds and link not in above:
                    await self._embed(link, depth, above)
        for link in links.inline:
            if link not in self._labels and (name := _name(await self._resource(link))):
                self._labels[link] = name
        # Below the last level nothing is put in, not even what is known from elsewhere.
        return self.known(blocks, above=above) if depth > 0 else blocks_to_markdown(blocks, labels=self._labels)

    def known(self, blocks: object, *, above: tuple[str, ...] = ()) -> str:
        embeds = {link: text for link, text in self._embeds.items() if link not in above}
        return blocks_to_markdown(blocks, embeds=embeds, labels=self._labels)

    async def _embed(self, link: str, depth: int, above: tuple[str, ...]) -> None:
        content = _part(_content(await self._resource(link)), link)
        text = await self.markdown(content, depth - 1, (*above, link))
        size = len(text.encode("utf-8", "replace"))
        if text and size <= self._bytes_left:
            self._bytes_left -= size
            self._embeds[link] = text

    async def _resource(self, link: str) -> dict[str, Any]:
        address = link.partition("#")[0]
        if not address.startswith("hm://"):
            return {}
        if address not in self._resources:
            if len(self._resources) >= _RESOURCES:
                return {}
            try:
                found = await self._ask("Resource", {"id": address})
            except AskFailed:
                found = None
            self._resources[address] = found if isinstance(found, dict) else {}
        return self._resources[address]


def _content(resource: Mapping[str, Any]) -> list[Any]:
    kind = resource.get("type")
    body = resource.get(kind) if kind in ("document", "comment") else None
    content = body.get("content") if isinstance(body, dict) else None
    return content if isinstance(content, list) else []


def _name(resource: Mapping[str, Any]) -> str:
    document = resource.get("document")
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return " ".join(name.split()) if isinstance(name, str) else ""


def _part(content: list[Any], link: str) -> list[Any]:
    """The whole content, or the block that the link's fragment names, with its children."""
    named = _BLOCK.match(link.partition("#")[2])
    if named is None:
        return content
    pending = list(reversed(content))
    while pending:
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        block, children = node.get("block"), node.get("children")
        if isinstance(block, dict) and block.get("id") == named[0]:
            return [node]
        if isinstance(children, list):
            pending.extend(reversed(children))
    return []
