"""Objects of the store and who owns them, so that none is forgotten and none is deleted while it is owned.

A key stands in `loose_blobs` before its object is written. The transaction that gives the object an owner takes it out
again, the one that deletes the owner puts it back, and the sweep deletes what has been loose for long enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.blobs import Blobs
from libs.errors import Invalid, Unavailable
from libs.store import Database, Tx, param, sql
from services.sessions.store.rows import NOW, number, text
from services.sessions.store.tables import loose_blobs

WRITE_MS = 3_600_000
"""How long writing an object and giving it an owner may take."""
_AGAIN_MS = 60_000
_ROWS = 100

_l = loose_blobs.c
_KEYS = param("keys", ARRAY(sa.Text))
_begin = sql(insert(loose_blobs).values(key=text("key"), due_at=number("due_at")))
_keep = sql(sa.delete(loose_blobs).where(_l.key == text("key"), sa.not_(_l.taken)))
_drop = sql(sa.update(loose_blobs).where(_l.key == text("key")).values(due_at=NOW))
_release = sql(
    insert(loose_blobs).from_select(
        ["key", "due_at"], sa.select(sa.func.unnest(_KEYS), sa.literal_column("0")), include_defaults=False
    )
)
_due = sa.select(_l.key).where(_l.due_at <= NOW).order_by(_l.due_at).limit(_ROWS).with_for_update(skip_locked=True)
_take = sql(
    sa.update(loose_blobs)
    .where(_l.key.in_(_due))
    .values(taken=True, due_at=NOW + number("again_ms"))
    .returning(_l.key)
)  # fmt: skip
_gone = sql(sa.delete(loose_blobs).where(_l.key == sa.any_(_KEYS)))


@dataclass(frozen=True, slots=True)
class Written:
    """An object that nobody owns yet."""

    key: str
    sha256: str


async def release(tx: Tx, keys: Sequence[str]) -> None:
    """What owned these objects is deleted by this transaction."""
    if keys:
        await tx.execute(_release, keys=list(keys))


class BlobStore:
    """Writes, reads and forgets objects. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, blobs: Blobs, *, now: Callable[[], int]) -> None:
        self._db, self._blobs, self._now = db, blobs, now

    @contextlib.asynccontextmanager
    async def written(self, pieces: AsyncIterable[bytes], size: int) -> AsyncIterator[Written]:
        """Write an object of `size` bytes; unless it gets an owner inside (`keep`), it is deleted soon.

        Raises Invalid when `pieces` give another number of bytes, Unavailable.
        """
        async with self._loose() as key:
            stored = await self._blobs.put(key, _bounded(pieces, size))
            if stored.size != size:
                raise Invalid("The bytes are fewer than announced")
            yield Written(key, stored.sha256)

    @contextlib.asynccontextmanager
    async def composed(self, parts: Sequence[str]) -> AsyncIterator[Written]:
        """As `written`, of objects one after the other. Raises libs.blobs.BlobMissing when one is gone."""
        async with self._loose() as key:
            stored = await self._blobs.compose(key, parts)
            yield Written(key, stored.sha256)

    async def keep(self, tx: Tx, written: Written) -> None:
        """The object gets an owner by this transaction. Raises Unavailable when that took too long."""
        if not await tx.execute(_keep, key=written.key):
            raise Unavailable("Storing the file took too long, try again", retry_after_s=1)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """The pieces of an object. Raises libs.blobs.BlobMissing before the first of them."""
        return await self._blobs.get(key)

    async def sweep(self) -> None:
        """Delete what has been loose for long enough, each object by one process at a time."""
        while rows := await self._db.fetch(_take, now=self._now(), again_ms=_AGAIN_MS):
            keys = [row["key"] for row in rows]
            await asyncio.gather(*(self._blobs.delete(key) for key in keys))
            await self._db.execute(_gone, keys=keys)
            if len(keys) < _ROWS:
                return

    @contextlib.asynccontextmanager
    async def _loose(self) -> AsyncIterator[str]:
        name = uuid.uuid4().hex
        key = f"sessions/{name[:2]}/{name}"
        await self._db.execute(_begin, key=key, due_at=self._now() + WRITE_MS)
        try:
            yield key
        finally:
            # No row is left when it was kept. When this fails it only takes an hour longer.
            with contextlib.suppress(Unavailable):
                await self._db.execute(_drop, key=key, now=self._now())


async def _bounded(pieces: AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    left = size
    async for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise Invalid("The bytes are more than announced")
        yield piece
