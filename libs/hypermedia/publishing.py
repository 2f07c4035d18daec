"""Publishing files block by block: a few leaves are held at a time."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Final, Protocol

from libs.hypermedia.blobs import Blob
from libs.hypermedia.unixfs import CHUNK_BYTES, FileTree

_BATCH_LEAVES: Final = 8
"""Published in one request."""


class Publishes(Protocol):
    """What takes blobs (libs.hypermedia.server)."""

    async def publish(self, blobs: Sequence[Blob]) -> None:
        """Publish all of them. Raises PublishFailed."""
        ...


async def publish_file(server: Publishes, pieces: AsyncIterable[bytes]) -> Blob:
    """Publish a file whose bytes come in pieces of any size; returns its root, which is published last.

    Raises PublishFailed; blocks that had been taken before stay where they are.
    """
    tree = FileTree()
    batch: list[Blob] = []
    async for chunk in _chunks(pieces):
        if len(batch) == _BATCH_LEAVES:
            await server.publish(list(dict.fromkeys(batch)))
            batch = []
        batch.append(tree.leaf(chunk))
    batch += tree.nodes()
    await server.publish(list(dict.fromkeys(batch)))
    return batch[-1]


async def _chunks(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of CHUNK_BYTES; one empty piece when there are none."""
    left = bytearray()
    some = False
    async for piece in pieces:
        left += piece
        while len(left) >= CHUNK_BYTES:
            some = True
            yield bytes(left[:CHUNK_BYTES])
            del left[:CHUNK_BYTES]
    if left or not some:
        yield bytes(left)
