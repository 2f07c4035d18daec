"""Files on their way through the edge, in pieces: to an owner, and around what an owner answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from libs.errors import Internal
from libs.protocol.limits import MIB

PIECE_BYTES = MIB
_INT64_MAX = (1 << 63) - 1


def declared_size(value: Any) -> int:
    """A positive integer; 0 for anything else."""
    usable = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return min(value, _INT64_MAX) if usable else 0


def in_pieces(kind: Any, start: Any, content: bytes) -> Iterator[Any]:
    """Requests: `start` first, then the content."""
    yield kind(start=start)
    view = memoryview(content)
    for at in range(0, len(view), PIECE_BYTES):
        yield kind(content=bytes(view[at : at + PIECE_BYTES]))


async def first(answers: AsyncIterator[Any]) -> Any:
    """The first answer of a stream that has one."""
    async for answer in answers:
        return answer
    raise Internal("Internal server error")


async def around(head: bytes, answers: AsyncIterator[Any], tail: bytes) -> AsyncIterator[bytes]:
    """The content of answers between two pieces of our own."""
    yield head
    async for answer in answers:
        yield answer.content
    yield tail
