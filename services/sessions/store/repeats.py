"""Idempotency of creations: a client request id with the same request makes one object (envelope.md, section 7)."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.errors import Conflict
from libs.store import Reader, Tx, param, sql
from services.sessions.store.rows import NOW, text
from services.sessions.store.tables import idempotency

_i = idempotency.c
_mine = sa.and_(_i.account == text("account"), _i.action == text("action"), _i.client_id == text("client_id"))
_known = sql(sa.select(_i.request_hash, _i.created_id).where(_mine))
_take = sql(
    insert(idempotency)
    .values(
        account=text("account"),
        action=text("action"),
        client_id=text("client_id"),
        request_hash=param("request_hash", sa.LargeBinary),
        created_id=text("created_id"),
        created_at=NOW,
    )
    .on_conflict_do_nothing()
    .returning(_i.client_id)
)


@dataclass(frozen=True, slots=True)
class Request:
    """What makes a creation recognizable: whose, which action, the client's id, and the hash of what is compared."""

    account: str
    action: str
    client_id: str
    request_hash: bytes


class Repeated(Exception):
    """The id has been taken meanwhile: roll back, then look the first request up."""


async def created_before(db: Reader, request: Request | None) -> str | None:
    """Id of the object that an equal request made; None when there was none.

    Raises Conflict `Client request ID payload mismatch` when the id was used for another request.
    """
    if request is None:
        return None
    row = await db.fetchrow(_known, account=request.account, action=request.action, client_id=request.client_id)
    if row is None:
        return None
    if row["request_hash"] != request.request_hash:
        raise Conflict("Client request ID payload mismatch")
    return row["created_id"]


async def created_first(db: Reader, request: Request | None) -> str:
    """Id of the object of the request that `take` found to be quicker. Raises Conflict when it was another request."""
    created = await created_before(db, request)
    if created is None:
        raise RuntimeError("an idempotency row is never deleted")
    return created


async def take(tx: Tx, request: Request | None, created_id: str, now: int) -> None:
    """Record, in the creating transaction, what answers a repeat; waits for an equal request in flight.

    Raises Repeated when the id was taken.
    """
    if request is None:
        return
    taken = await tx.fetchval(
        _take,
        account=request.account,
        action=request.action,
        client_id=request.client_id,
        request_hash=request.request_hash,
        created_id=created_id,
        now=now,
    )
    if taken is None:
        raise Repeated
