"""Uploads in chunks: staged as objects, durable, gone when nobody touches them for a while."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from seed.sessions.v1 import attachments_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.blobs import BlobMissing
from libs.errors import NotFound, TooLarge, TooMany
from libs.protocol.files import check_chunk, check_complete
from libs.store import Database, Tx, param, sql
from services.sessions.domain.access import CHATTER
from services.sessions.domain.attachments import Bounds, Description
from services.sessions.store.access import MEMBERSHIP, allowed, with_membership
from services.sessions.store.attachments import AttachmentStore
from services.sessions.store.blobs import BlobStore, release
from services.sessions.store.rows import NOW, Row, number, text
from services.sessions.store.tables import agents, sessions, upload_chunks, uploads

_EXPIRED_ROWS = 100

_u, _c, _a, _s = uploads.c, upload_chunks.c, agents.c, sessions.c
_ID = text("id")
_FRESH = _u.updated_at > number("stale_at")
_IDS = param("ids", ARRAY(sa.Text))

_view = sql(
    sa.select(*_u, _a.owner, _a.public_read, _a.public_chat, *MEMBERSHIP)
    .select_from(with_membership(uploads.join(sessions, _s.id == _u.session_id).join(agents, _a.id == _s.agent_id)))
    .where(_u.id == _ID, _FRESH)
)
_lock_owner = sql(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(text("owner"), 0))))
_open = sql(
    sa.select(sa.func.count().label("count"), sa.func.min(_u.updated_at).label("oldest")).where(
        _u.account == text("owner"), _FRESH
    )
)
_begin = sql(
    insert(uploads)
    .from_select(
        ["id", "session_id", "account", "name", "mime_type", "size", "created_at", "updated_at"],
        # The session's row is held, so that it cannot be deleted before this commits.
        sa.select(_ID, _s.id, text("owner"), text("name"), text("mime_type"), number("size"), NOW, NOW)
        .where(_s.id == text("session_id"))
        .with_for_update(read=True, key_share=True),
        include_defaults=False,
    )
    .returning(_u.id)
)
_lock = sql(sa.select(*_u).where(_u.id == _ID, _FRESH).with_for_update())
_add_chunk = sql(insert(upload_chunks).values(upload_id=_ID, offset=number("offset"), blob=text("blob")))
_received = sql(sa.update(uploads).where(_u.id == _ID).values(received=number("received"), updated_at=NOW))
_chunks = sql(sa.select(_c.blob).where(_c.upload_id == _ID).order_by(_c.offset))
_touch = sql(sa.update(uploads).where(_u.id == _ID, _FRESH).values(updated_at=NOW))

_of_sessions = sql(sa.select(_u.id).where(_u.session_id == sa.any_(_IDS)).order_by(_u.id).with_for_update())
_expired = sql(
    sa.select(_u.id)
    .where(_u.updated_at <= number("stale_at"))
    .order_by(_u.updated_at)
    .limit(_EXPIRED_ROWS)
    .with_for_update(skip_locked=True)
)
_drop_chunks = sql(sa.delete(upload_chunks).where(_c.upload_id == sa.any_(_IDS)).returning(_c.blob))
_drop = sql(sa.delete(uploads).where(_u.id == sa.any_(_IDS)))


def _missing() -> NotFound:
    return NotFound("Upload not found")


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that its caller may continue."""

    id: str
    session_id: str
    received: int
    file: Description


class UploadStore:
    """Uploads of one database. `now` gives Unix milliseconds."""

    def __init__(
        self, db: Database, blobs: BlobStore, attachments: AttachmentStore, bounds: Bounds, *, now: Callable[[], int]
    ) -> None:
        self._db, self._blobs, self._attachments, self._bounds, self._now = db, blobs, attachments, bounds, now

    async def begin(self, session_id: str, owner: str, file: Description) -> str:
        """Open an upload for the owner of the agent; returns its id.

        Raises TooMany, TooLarge `Account storage is full`, NotFound for a deleted session.
        """
        upload_id, now = str(uuid.uuid4()), self._now()
        async with self._db.transaction() as tx:
            await tx.fetchrow(_lock_owner, owner=owner)
            row = await tx.fetchrow(_open, owner=owner, stale_at=self._stale_at())
            if row is not None and row["count"] >= self._bounds.uploads_per_account:
                # At the latest one is free when the oldest expires.
                left_s = (row["oldest"] - self._stale_at()) / 1000
                raise TooMany("Too many uploads in progress", retry_after_s=max(1.0, left_s))
            await self._attachments.check_room(tx, session_id, file.size)
            begun = await tx.fetchval(
                _begin,
                id=upload_id,
                session_id=session_id,
                owner=owner,
                name=file.name,
                mime_type=file.mime_type,
                size=file.size,
                now=now,
            )
            if begun is None:
                raise NotFound("Session not found")
        return upload_id

    async def get(self, account: str, upload_id: str) -> Upload:
        """An upload, for who may chat in its session. Raises NotFound, Forbidden."""
        row = await self._db.fetchrow(_view, account=account, id=upload_id, stale_at=self._stale_at())
        if row is None:
            raise _missing()
        allowed(row, account, CHATTER, "Upload")
        return _upload_of(row)

    async def append(self, upload: Upload, offset: int, size: int, pieces: AsyncIterable[bytes]) -> int:
        """Store a chunk that `check_chunk` lets pass; returns how many bytes there are now.

        Raises as `check_chunk` when another chunk was quicker, NotFound, Invalid for `pieces` of another size.
        """
        async with self._blobs.written(pieces, size) as written:
            async with self._db.transaction() as tx:
                row = await tx.fetchrow(_lock, id=upload.id, stale_at=self._stale_at())
                if row is None:
                    raise _missing()
                check_chunk(offset, size, row["received"], row["size"])
                await self._blobs.keep(tx, written)
                await tx.execute(_add_chunk, id=upload.id, offset=offset, blob=written.key)
                await tx.execute(_received, id=upload.id, received=offset + size, now=self._now())
        return offset + size

    async def commit(self, upload: Upload) -> pb.Attachment:
        """Make a complete upload an attachment. It is gone afterwards, also when the session has too many already.

        While the object store is away it stays. Raises Invalid, NotFound, TooLarge, Unavailable.
        """
        check_complete(upload.received, upload.file.size)
        # Touched: it does not expire while its chunks are put together.
        if not await self._db.execute(_touch, id=upload.id, stale_at=self._stale_at(), now=self._now()):
            raise _missing()
        chunks = [row["blob"] for row in await self._db.fetch(_chunks, id=upload.id)]
        try:
            async with self._blobs.composed(chunks) as written:
                async with self._db.transaction() as tx:
                    await self._attachments.hold(tx, upload.session_id)
                    if await tx.fetchrow(_lock, id=upload.id, stale_at=self._stale_at()) is None:
                        raise _missing()
                    await _discard(tx, [upload.id])
                    return await self._attachments.add(tx, upload.session_id, upload.file, written)
        except (BlobMissing, TooLarge) as e:
            # The chunks of an upload go when another commit or an abort was quicker, and then it is gone too.
            await self.abort(upload)
            raise _missing() if isinstance(e, BlobMissing) else e from None

    async def abort(self, upload: Upload) -> None:
        """Discard an upload. Raises NotFound."""
        async with self._db.transaction() as tx:
            if await tx.fetchrow(_lock, id=upload.id, stale_at=self._stale_at()) is None:
                raise _missing()
            await _discard(tx, [upload.id])

    async def expire(self) -> None:
        """Discard what nobody has touched for too long."""
        async with self._db.transaction() as tx:
            rows = await tx.fetch(_expired, stale_at=self._stale_at())
            await _discard(tx, [row["id"] for row in rows])

    def _stale_at(self) -> int:
        return self._now() - self._bounds.upload_idle_ms


async def discard_of(tx: Tx, session_ids: Sequence[str]) -> None:
    """Discard the uploads of sessions that this transaction holds."""
    # Locked first: a chunk that is just being appended would be missed.
    await _discard(tx, [row["id"] for row in await tx.fetch(_of_sessions, ids=list(session_ids))])


async def _discard(tx: Tx, ids: list[str]) -> None:
    if ids:
        await release(tx, [row["blob"] for row in await tx.fetch(_drop_chunks, ids=ids)])
        await tx.execute(_drop, ids=ids)


def _upload_of(row: Row) -> Upload:
    return Upload(
        id=row["id"],
        session_id=row["session_id"],
        received=row["received"],
        file=Description(row["name"], row["mime_type"], row["size"]),
    )
