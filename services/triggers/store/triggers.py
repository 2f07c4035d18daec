"""Triggers: list, view, create, change, delete."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from seed.triggers.v1 import triggers_pb2 as pb
from sqlalchemy.dialects.postgresql import insert

from libs import events
from libs.errors import Conflict, NotFound
from libs.protocol import json_bytes
from libs.store import Database, Outbox, Reader, Row, Tx, param, sql
from services.triggers.domain import schedules
from services.triggers.domain.definition import SCHEDULE, WEBHOOK, Definition, check_writable
from services.triggers.domain.webhooks import new_nonce
from services.triggers.store.rows import NOW, binary, text, trigger_of
from services.triggers.store.tables import claims, client_requests, deletions, trigger_firings, triggers

_t, _f, _r, _d = triggers.c, trigger_firings.c, client_requests.c, deletions.c
NOUN = "Agent trigger"
_FIRINGS = 25
_SESSIONS = 500

LOCK = sql(sa.select(*_t).where(_t.id == text("id")).with_for_update())
_one = sql(sa.select(*_t).where(_t.id == text("id")))
_listed = sql(sa.select(*_t).where(_t.agent_id == text("agent_id")).order_by(_t.updated_at.desc(), _t.id))
_create = sql(
    insert(triggers)
    .values(
        id=text("id"),
        account=text("account"),
        agent_id=text("agent_id"),
        name=text("name"),
        enabled=param("enabled", sa.Boolean),
        kind=text("kind"),
        source=binary("source"),
        prompt=binary("prompt"),
        continuation=binary("continuation"),
        webhook_nonce=binary("webhook_nonce"),
        created_at=NOW,
        updated_at=NOW,
        due_at=param("due_at"),
    )
    .returning(*_t)
)
_update = sql(
    sa.update(triggers)
    .where(_t.id == text("id"))
    .values(
        name=text("name"),
        enabled=param("enabled", sa.Boolean),
        kind=text("kind"),
        source=binary("source"),
        prompt=binary("prompt"),
        continuation=binary("continuation"),
        webhook_nonce=binary("webhook_nonce"),
        due_at=param("due_at"),
        # Clients tell states apart by it.
        updated_at=sa.func.greatest(_t.updated_at + 1, NOW),
        last_error=None,
    )
    .returning(*_t)
)
_claimed = sql(
    sa.select(sa.literal_column("1")).where(
        claims.c.trigger_id == text("id"), claims.c.firing_key == text("firing_key")
    )
)
_delete = sql(sa.delete(triggers).where(_t.id == text("id")).returning(*_t))
# Locked in the order in which events lock them.
_of_agent = sa.select(_t.id).where(_t.agent_id == text("agent_id")).order_by(_t.created_at, _t.id).with_for_update()
DROP_AGENT = sql(sa.delete(triggers).where(_t.id.in_(_of_agent)))
FORGET = sql(
    insert(deletions).values(trigger_id=text("id"), next_at=NOW).on_conflict_do_nothing(index_elements=["trigger_id"])
)
_firings = sql(
    sa.select(*_f).where(_f.trigger_id == text("id")).order_by(_f.fired_at.desc(), _f.id.desc()).limit(_FIRINGS)
)
_session_ids = sql(
    sa.select(_f.session_id)
    .where(_f.trigger_id == text("id"), _f.session_id.is_not(None))
    .order_by(_f.fired_at.desc(), _f.id.desc())
    .limit(_SESSIONS)
)

_mine = sa.and_(_r.account == text("account"), _r.client_request_id == text("client_request_id"))
_request = sql(sa.select(_r.request_hash, _r.created).where(_mine))
_take = sql(
    insert(client_requests)
    .values({c.name: NOW if c.name == "created_at" else param(c.name, c.type) for c in client_requests.c})
    .on_conflict_do_nothing()
    .returning(_r.client_request_id)
)


@dataclass(frozen=True, slots=True)
class Request:
    """What makes a creation recognizable: whose, the client's id, and the hash of what is compared."""

    account: str
    client_id: str
    request_hash: bytes


class _Taken(Exception):
    """The id has been taken meanwhile: roll back, then look the first request up."""


@dataclass(frozen=True, slots=True)
class Created:
    """A new trigger, or the one that an equal request made, as it was made."""

    trigger: pb.Trigger
    webhook_nonce: bytes | None


class TriggerStore:
    """Triggers of one database. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, outbox: Outbox, *, now: Callable[[], int]) -> None:
        self._db, self._outbox, self._now = db, outbox, now

    async def of_agent(self, agent_id: str) -> list[Row]:
        """All triggers of an agent, newest change first."""
        return list(await self._db.fetch(_listed, agent_id=agent_id))

    async def get(self, trigger_id: str) -> Row:
        """One trigger. Raises NotFound."""
        return _found(await self._db.fetchrow(_one, id=trigger_id))

    async def firings(self, trigger_id: str) -> tuple[list[Row], list[str]]:
        """The newest firings, and the sessions that firings have started, newest first."""
        # In this order, so that no firing has a session that is not among them.
        firings = list(await self._db.fetch(_firings, id=trigger_id))
        sessions = [row["session_id"] for row in await self._db.fetch(_session_ids, id=trigger_id)]
        return firings, list(dict.fromkeys(sessions))

    async def create(
        self, account: str, agent_id: str, new: Definition, request: Request | None = None, *, new_id: str = ""
    ) -> Created:
        """Store a trigger of an agent, once by the request. Raises Conflict when its id came with another request."""
        trigger_id, now = new_id or str(uuid.uuid4()), self._now()
        try:
            async with self._outbox.transaction() as tx:
                row = await tx.fetchrow(
                    _create,
                    id=trigger_id,
                    account=account,
                    agent_id=agent_id,
                    due_at=_due(new.source, new.enabled, now, None),
                    webhook_nonce=new_nonce() if new.kind == WEBHOOK else None,
                    now=now,
                    **_columns(new),
                )
                made = trigger_of(_found(row))
                if request is not None:
                    await self._take(tx, request, made, now)
                hint(tx, "trigger-created", account, agent_id)
        except _Taken:
            assert request is not None
            return await self._made(request)
        return Created(made, row["webhook_nonce"] if row is not None else None)

    async def created_before(self, request: Request | None) -> Created | None:
        """What an equal request made; None when none did. Raises Conflict `Client request ID payload mismatch`."""
        if request is None:
            return None
        row = await self._db.fetchrow(_request, account=request.account, client_request_id=request.client_id)
        if row is None:
            return None
        if row["request_hash"] != request.request_hash:
            raise Conflict("Client request ID payload mismatch")
        made = pb.Trigger.FromString(row["created"])
        current = await self._db.fetchrow(_one, id=made.id)
        return Created(made, current["webhook_nonce"] if current is not None else None)

    async def _made(self, request: Request) -> Created:
        made = await self.created_before(request)
        if made is None:
            raise RuntimeError("a client request is never deleted")
        return made

    async def _take(self, tx: Tx, request: Request, made: pb.Trigger, now: int) -> None:
        taken = await tx.fetchval(
            _take,
            account=request.account,
            client_request_id=request.client_id,
            request_hash=request.request_hash,
            trigger_id=made.id,
            created=made.SerializeToString(),
            now=now,
        )
        if taken is None:
            raise _Taken

    async def update(self, trigger_id: str, changes: Mapping[str, Any], expected: int | None) -> Row:
        """Replace the keys of a patch. Raises NotFound, Conflict (merged, or changed since `expected`)."""
        now = self._now()
        async with self._outbox.transaction() as tx:
            row = _found(await tx.fetchrow(LOCK, id=trigger_id))
            check_writable(row["merged_into"], row["updated_at"], expected)
            row = await change(tx, row, changes, now)
            hint(tx, "trigger-updated", row["account"], row["agent_id"])
            return row

    async def delete(self, trigger_id: str) -> None:
        """Delete a trigger with its firings; sessions are still to forget it. Raises NotFound."""
        async with self._outbox.transaction() as tx:
            row = _found(await tx.fetchrow(_delete, id=trigger_id))
            await tx.execute(FORGET, id=trigger_id, now=self._now())
            hint(tx, "trigger-deleted", row["account"], row["agent_id"])

    async def drop_agent(self, agent_id: str) -> None:
        """Delete all triggers of an agent that is gone, and with it its sessions."""
        await self._db.execute(DROP_AGENT, agent_id=agent_id)


async def change(tx: Tx, row: Row, changes: Mapping[str, Any], now: int) -> Row:
    """Replace keys of a locked trigger, as they are stored in the public types."""
    from_row = {key: row[key] for key in ("name", "enabled", "kind", "source", "prompt", "continuation")}
    values = {**from_row, **_documents(changes)}
    source: Mapping[str, Any] | None = changes.get("source")
    nonce, due_at = row["webhook_nonce"], row["due_at"]
    if source is not None:
        values["kind"] = source["type"]
        nonce = (nonce or new_nonce()) if source["type"] == WEBHOOK else None
    if source is not None or "enabled" in changes:
        due_at = await next_due(tx, {**dict(row), **values}, row["last_fired_at"])
    changed = await tx.fetchrow(_update, id=row["id"], webhook_nonce=nonce, due_at=due_at, now=now, **values)
    return _found(changed)


async def next_due(db: Reader, row: Row | Mapping[str, Any], last_fired_at: int | None) -> int | None:
    """When a trigger of these columns is to be looked at by the clock."""
    source = trigger_source(row)
    at = _due(source, row["enabled"], row["created_at"], last_fired_at)
    if at is not None and source["schedule"]["kind"] == schedules.ONCE:
        key = schedules.firing_key(row["id"], at)
        if await db.fetchval(_claimed, id=row["id"], firing_key=key) is not None:
            return None
    return at


def trigger_source(row: Row | Mapping[str, Any]) -> Mapping[str, Any]:
    """The source of a row."""
    return msgspec.json.decode(row["source"])


def hint(tx: Tx, reason: str, account: str, agent_id: str) -> None:
    """Tell the owner and the members of the agent."""
    tx.emit(*events.account_hint(account, reason, agent_id=agent_id))


def _due(source: Mapping[str, Any], enabled: bool, created_at: int, last_fired_at: int | None) -> int | None:
    if source["type"] != SCHEDULE or not enabled:
        return None
    return schedules.next_due(source["schedule"], created_at, last_fired_at)


def _columns(new: Definition) -> dict[str, Any]:
    return {
        "name": new.name,
        "enabled": new.enabled,
        "kind": new.kind,
        "source": json_bytes(new.source),
        "prompt": json_bytes(new.prompt),
        "continuation": None if new.continuation is None else json_bytes(new.continuation),
    }


def _documents(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value if key in ("name", "enabled") else json_bytes(value) for key, value in changes.items()}


def _found(row: Row | None) -> Row:
    if row is None:
        raise NotFound(f"{NOUN} not found")
    return row
