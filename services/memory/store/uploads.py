"""Uploads in chunks: staged as objects, durable, gone when nobody touches them for a while."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.blobs import BlobMissing
from libs.errors import NotFound, SeedError, TooMany, Unavailable
from libs.objects import Objects
from libs.protocol.files import check_chunk, check_complete
from libs.store import Database, Outbox, Tx, param, sql
from services.memory.domain.contents import TextCheck
from services.memory.domain.listing import Entry
from services.memory.domain.uploads import Bounds, new_id
from services.memory.store import spaces
from services.memory.store.files import FileStore
from services.memory.store.objects import release
from services.memory.store.params import AGENT, IDS, NOW, PATH
from services.memory.store.spaces import Space, SpaceStore
from services.memory.store.tables import upload_chunks, uploads

_EXPIRED_ROWS = 100

_u, _c = uploads.c, upload_chunks.c
_ID, _OWNER = param("id", sa.Text), param("owner", sa.Text)
_STALE_AT = param("stale_at", sa.BigInteger)
_FRESH = _u.updated_at > _STALE_AT

_view = sql(sa.select(*_u).where(_u.id == _ID, _FRESH))
_lock_owner = sql(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(_OWNER, 0))))
_open = sql(
    sa.select(sa.func.count().label("count"), sa.func.min(_u.updated_at).label("oldest")).where(
        _u.account == _OWNER, _FRESH
    )
)
_begin = sql(
    insert(uploads).values(
        id=_ID,
        agent_id=AGENT,
        account=_OWNER,
        path=PATH,
        size=param("size", sa.BigInteger),
        created_at=NOW,
        updated_at=NOW,
    )
)
_lock = sql(sa.select(*_u).where(_u.id == _ID, _FRESH).with_for_update())
_add_chunk = sql(
    insert(upload_chunks).values(
        upload_id=_ID, offset=param("offset", sa.BigInteger), blob=param("blob", sa.Text)
    )
)  # fmt: skip
_received = sql(
    sa.update(uploads).where(_u.id == _ID).values(received=param("received", sa.BigInteger), updated_at=NOW)
)
_chunks = sql(sa.select(_c.blob).where(_c.upload_id == _ID).order_by(_c.offset))
_touch = sql(sa.update(uploads).where(_u.id == _ID, _FRESH).values(updated_at=NOW))

_of_agent = sql(sa.select(_u.id).where(_u.agent_id == AGENT).order_by(_u.id).with_for_update())
_expired = sql(
    sa.select(_u.id)
    .where(_u.updated_at <= _STALE_AT)
    .order_by(_u.updated_at)
    .limit(_EXPIRED_ROWS)
    .with_for_update(skip_locked=True)
)
_drop_chunks = sql(sa.delete(upload_chunks).where(_c.upload_id == sa.any_(IDS)).returning(_c.blob))
_drop = sql(sa.delete(uploads).where(_u.id == sa.any_(IDS)))


def missing() -> NotFound:
    """There is no such upload, or nobody has touched it for too long."""
    return NotFound("Upload not found")


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload: `received` of `size` bytes of the file at `path`."""

    id: str
    space: Space
    path: str
    size: int
    received: int


class UploadStore:
    """Uploads of one database. `now` gives Unix milliseconds."""

    def __init__(
        self,
        db: Database,
        outbox: Outbox,
        objects: Objects,
        files: FileStore,
        room: SpaceStore,
        bounds: Bounds,
        *,
        now: Callable[[], int],
    ) -> None:
        self._db, self._outbox, self._objects, self._files, self._spaces = db, outbox, objects, files, room
        self._bounds, self._now = bounds, now

    async def begin(self, space: Space, path: str, size: int) -> str:
        """Open an upload; returns its id.

        Raises TooMany, TooLarge `Account storage is full`, NotFound for a deleted agent.
        """
        upload_id = new_id()
        async with self._db.transaction() as tx:
            await tx.fetchrow(_lock_owner, owner=space.owner)
            row = await tx.fetchrow(_open, owner=space.owner, stale_at=self._stale_at())
            if row is not None and row["count"] >= self._bounds.uploads_per_account:
                # At the latest one is free when the oldest expires.
                left_s = (row["oldest"] - self._stale_at()) / 1000
                raise TooMany("Too many uploads in progress", retry_after_s=max(1.0, left_s))
            await self._spaces.check_room(tx, space.owner, size)
            await spaces.hold(tx, space)
            await tx.execute(
                _begin,
                id=upload_id,
                agent_id=space.agent_id,
                owner=space.owner,
                path=path,
                size=size,
                now=self._now(),
            )
        return upload_id

    async def get(self, upload_id: str) -> Upload:
        """An upload. Raises NotFound."""
        row = await self._db.fetchrow(_view, id=upload_id, stale_at=self._stale_at())
        if row is None:
            raise missing()
        return Upload(row["id"], Space(row["agent_id"], row["account"]), row["path"], row["size"], row["received"])

    async def append(self, upload: Upload, offset: int, size: int, pieces: AsyncIterable[bytes]) -> int:
        """Store a chunk that `check_chunk` lets pass; returns how many bytes there are now.

        Raises as `check_chunk` when another chunk was quicker, NotFound, Invalid for `pieces` of another size.
        """
        async with self._objects.written(pieces, size) as written:
            async with self._db.transaction() as tx:
                row = await tx.fetchrow(_lock, id=upload.id, stale_at=self._stale_at())
                if row is None:
                    raise missing()
                check_chunk(offset, size, row["received"], row["size"])
                await self._objects.keep(tx, written)
                await tx.execute(_add_chunk, id=upload.id, offset=offset, blob=written.key)
                await tx.execute(_received, id=upload.id, received=offset + size, now=self._now())
        return offset + size

    async def commit(self, upload: Upload) -> Entry:
        """Make a complete upload a file. It is gone afterwards, also when it cannot be one.

        While the object store is away it stays. Raises Invalid, NotFound, TooLarge, Unavailable.
        """
        check_complete(upload.received, upload.size)
        # Touched: it does not expire while its chunks are put together.
        if not await self._db.execute(_touch, id=upload.id, stale_at=self._stale_at(), now=self._now()):
            raise missing()
        chunks = [row["blob"] for row in await self._db.fetch(_chunks, id=upload.id)]
        check = TextCheck()
        try:
            async with self._objects.written(check.passing(self._joined(chunks)), upload.size) as written:
                async with self._outbox.transaction() as tx:
                    await spaces.hold(tx, upload.space)
                    if await tx.fetchrow(_lock, id=upload.id, stale_at=self._stale_at()) is None:
                        raise missing()
                    await _discard(tx, [upload.id])
                    return await self._files.put(tx, upload.space, upload.path, written, check.is_text())
        except Unavailable:
            raise
        except (BlobMissing, SeedError) as e:
            # The chunks of an upload go when another commit or an abort was quicker, and then it is gone too.
            await self.abort(upload)
            raise missing() if isinstance(e, BlobMissing) else e from None

    async def abort(self, upload: Upload) -> None:
        """Discard an upload. Raises NotFound."""
        async with self._db.transaction() as tx:
            if await tx.fetchrow(_lock, id=upload.id, stale_at=self._stale_at()) is None:
                raise missing()
            await _discard(tx, [upload.id])

    async def expire(self) -> None:
        """Discard what nobody has touched for too long."""
        async with self._db.transaction() as tx:
            rows = await tx.fetch(_expired, stale_at=self._stale_at())
            await _discard(tx, [row["id"] for row in rows])

    async def _joined(self, chunks: Sequence[str]) -> AsyncIterator[bytes]:
        for chunk in chunks:
            async for piece in await self._objects.read(chunk):
                yield piece

    def _stale_at(self) -> int:
        return self._now() - self._bounds.idle_ms


async def discard_of(tx: Tx, agent_id: str) -> None:
    """Discard the uploads of an agent whose space this transaction holds."""
    # Locked first: a chunk that is just being appended would be missed.
    await _discard(tx, [row["id"] for row in await tx.fetch(_of_agent, agent_id=agent_id)])


async def _discard(tx: Tx, ids: list[str]) -> None:
    if ids:
        await release(tx, [row["blob"] for row in await tx.fetch(_drop_chunks, ids=ids)])
        await tx.execute(_drop, ids=ids)
