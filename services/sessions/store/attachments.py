"""Attachments: rows by session and SHA-256, each with its object."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from seed.sessions.v1 import attachments_pb2 as pb
from sqlalchemy.dialects.postgresql import insert

from libs.blobs import BlobMissing
from libs.errors import NotFound, TooLarge
from libs.protocol.files import check_storage
from libs.store import Database, Tx, sql
from services.sessions.domain.attachments import Bounds, Description, not_found
from services.sessions.store.blobs import BlobStore, Written
from services.sessions.store.rows import NOW, Row, number, text
from services.sessions.store.tables import attachments, sessions

_a = attachments.c
_SESSION = text("session_id")

# Holding the session makes the count exact, and no deletion of it goes on meanwhile.
_hold = sql(sa.select(sessions.c.id).where(sessions.c.id == _SESSION).with_for_update(key_share=True))
_one = sql(sa.select(*_a).where(_a.session_id == _SESSION, _a.id == text("id")))
_count = sql(sa.select(sa.func.count()).select_from(attachments).where(_a.session_id == _SESSION))
_sibling = sessions.alias("sibling")
_owner = sa.select(sessions.c.owner).where(sessions.c.id == _SESSION).scalar_subquery()
_used = sql(
    sa.select(sa.func.coalesce(sa.func.sum(_a.size), 0).cast(sa.BigInteger))
    .select_from(attachments.join(_sibling, _sibling.c.id == _a.session_id))
    .where(_sibling.c.owner == _owner)
)
_add = sql(
    insert(attachments)
    .values(
        session_id=_SESSION,
        id=text("id"),
        name=text("name"),
        mime_type=text("mime_type"),
        size=number("size"),
        created_at=NOW,
        blob=text("blob"),
    )
    .returning(*_a)
)


@dataclass(frozen=True, slots=True)
class Opened:
    """An attachment and its bytes, in pieces."""

    attachment: pb.Attachment
    pieces: AsyncIterator[bytes]


class AttachmentStore:
    """Attachments of one database. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, blobs: BlobStore, bounds: Bounds, *, now: Callable[[], int]) -> None:
        self._db, self._blobs, self._bounds, self._now = db, blobs, bounds, now

    async def upload(self, session_id: str, file: Description, pieces: AsyncIterable[bytes]) -> pb.Attachment:
        """Store a file. Raises as `add`, Invalid when `pieces` are not `file.size` bytes, Unavailable."""
        async with self._blobs.written(pieces, file.size) as written:
            async with self._db.transaction() as tx:
                await self.hold(tx, session_id)
                return await self.add(tx, session_id, file, written)

    async def open(self, session_id: str, attachment_id: str) -> Opened:
        """An attachment to be read. Raises NotFound `Attachment not found: …`, `Attachment content missing: …`."""
        row = await self._db.fetchrow(_one, session_id=session_id, id=attachment_id)
        if row is None:
            raise not_found(attachment_id)
        try:
            return Opened(_attachment_of(row), await self._blobs.read(row["blob"]))
        except BlobMissing:
            raise NotFound(f"Attachment content missing: {attachment_id}") from None

    async def hold(self, tx: Tx, session_id: str) -> None:
        """Lock the session until this transaction ends. Raises NotFound."""
        if await tx.fetchrow(_hold, session_id=session_id) is None:
            raise NotFound("Session not found")

    async def check_room(self, tx: Tx, session_id: str, size: int) -> None:
        """Whether the owner of a session may have `size` bytes more. Raises TooLarge `Account storage is full`.

        Uploads into several sessions of one owner at once may go beyond by what they bring.
        """
        if self._bounds.storage_bytes:
            check_storage(await tx.fetchval(_used, session_id=session_id), size, self._bounds.storage_bytes)

    async def add(self, tx: Tx, session_id: str, file: Description, written: Written) -> pb.Attachment:
        """Give a session that is held a file; one that it has already stays what it is.

        Raises TooLarge `Session already has … attachments`, `Account storage is full`, Unavailable.
        """
        known = await tx.fetchrow(_one, session_id=session_id, id=written.sha256)
        if known is not None:
            return _attachment_of(known)
        most = self._bounds.attachments_per_session
        if await tx.fetchval(_count, session_id=session_id) >= most:
            raise TooLarge(f"Session already has {most} attachments")
        await self.check_room(tx, session_id, file.size)
        await self._blobs.keep(tx, written)
        row: Any = await tx.fetchrow(
            _add,
            session_id=session_id,
            id=written.sha256,
            name=file.name,
            mime_type=file.mime_type,
            size=file.size,
            now=self._now(),
            blob=written.key,
        )
        return _attachment_of(row)


def _attachment_of(row: Row) -> pb.Attachment:
    return pb.Attachment(
        id=row["id"],
        session_id=row["session_id"],
        name=row["name"],
        mime_type=row["mime_type"],
        size=row["size"],
        created_at=row["created_at"],
    )
