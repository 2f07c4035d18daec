"""Writing, reading and forgetting objects."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from libs.blobs import Blobs
from libs.errors import Invalid, Unavailable
from libs.objects.loose import ROWS, LooseObjects
from libs.store import Database, Tx

WRITE_MS = 3_600_000
"""How long writing an object and giving it an owner may take."""
_AGAIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Written:
    """An object that nobody owns yet."""

    key: str
    size: int
    sha256: str


class Objects:
    """Objects of one service, below `prefix`. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, blobs: Blobs, loose: LooseObjects, prefix: str, *, now: Callable[[], int]) -> None:
        self._db, self._blobs, self._loose, self._prefix, self._now = db, blobs, loose, prefix, now

    @contextlib.asynccontextmanager
    async def written(self, pieces: AsyncIterable[bytes], size: int | None = None) -> AsyncIterator[Written]:
        """Write an object of `size` bytes (None: any); unless it gets an owner inside (`keep`), it is deleted soon.

        Raises Invalid when `pieces` give another number of bytes, Unavailable.
        """
        async with self._new() as key:
            stored = await self._blobs.put(key, pieces if size is None else _bounded(pieces, size))
            if size is not None and stored.size != size:
                raise Invalid("The bytes are fewer than announced")
            yield Written(key, stored.size, stored.sha256)

    @contextlib.asynccontextmanager
    async def composed(self, parts: Sequence[str]) -> AsyncIterator[Written]:
        """As `written`, of objects one after the other. Raises libs.blobs.BlobMissing when one is gone."""
        async with self._new() as key:
            stored = await self._blobs.compose(key, parts)
            yield Written(key, stored.size, stored.sha256)

    async def keep(self, tx: Tx, written: Written) -> None:
        """The object gets an owner by this transaction. Raises Unavailable when that took too long."""
        if not await self._loose.keep(tx, written.key):
            raise Unavailable("Storing the file took too long, try again", retry_after_s=1)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """The pieces of an object. Raises libs.blobs.BlobMissing before the first of them."""
        return await self._blobs.get(key)

    async def sweep(self) -> None:
        """Delete what has been loose for long enough, each object by one process at a time."""
        while keys := await self._loose.take(self._db, self._now(), _AGAIN_MS):
            await asyncio.gather(*(self._blobs.delete(key) for key in keys))
            await self._loose.gone(self._db, keys)
            if len(keys) < ROWS:
                return

    @contextlib.asynccontextmanager
    async def _new(self) -> AsyncIterator[str]:
        name = uuid.uuid4().hex
        key = f"{self._prefix}/{name[:2]}/{name}"
        await self._loose.begin(self._db, key, self._now() + WRITE_MS)
        try:
            yield key
        finally:
            # No row is left when it was kept. When this fails it only takes an hour longer.
            with contextlib.suppress(Unavailable):
                await self._loose.drop(self._db, key, self._now())


async def _bounded(pieces: AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    left = size
    async for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise Invalid("The bytes are more than announced")
        yield piece
