"""Firings: admitted once by their key, carried out, and what has become of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.errors import Conflict
from libs.protocol import json_bytes
from libs.richtext import blocks_to_markdown
from libs.store import Database, Outbox, Row, Tx, param, sql
from services.triggers.domain import schedules
from services.triggers.domain.definition import SCHEDULE
from services.triggers.domain.firing import CREATED, DELIVERED, ERROR, NO_LISTENER, Activation, Fired, context
from services.triggers.store.rows import NOW, binary, text
from services.triggers.store.tables import claims, deletions, trigger_firings, triggers
from services.triggers.store.triggers import DROP_AGENT, FORGET, LOCK, hint, next_due

_t, _f, _c, _d = triggers.c, trigger_firings.c, claims.c, deletions.c
_ROWS = 50
_BACKOFF_MAX_MS = 60_000
_ERROR_CHARS = 2_000

_lock_free = sql(sa.select(*_t).where(_t.id == text("id")).with_for_update(skip_locked=True))
_due = sql(
    sa.select(_t.id)
    .where(_t.enabled, _t.due_at <= NOW)
    .order_by(_t.created_at, _t.id)
    .limit(param("limit", sa.Integer))
)
_of_account = sql(
    sa.select(*_t)
    .where(_t.account == text("account"), _t.enabled, _t.kind == text("kind"))
    .order_by(_t.created_at, _t.id)
)
_accounts = sql(
    sa.select(_t.account)
    .where(_t.account == sa.any_(param("accounts", ARRAY(sa.Text))), _t.enabled, _t.kind == text("kind"))
    .distinct()
)
_claim = sql(
    insert(claims)
    .values(trigger_id=text("trigger_id"), firing_key=text("firing_key"), digest=binary("digest"), created_at=NOW)
    .on_conflict_do_nothing()
    .returning(_c.trigger_id)
)
_claimed = sql(sa.select(_c.digest).where(_c.trigger_id == text("trigger_id"), _c.firing_key == text("firing_key")))
_new = sql(
    insert(trigger_firings)
    .values(
        id=text("id"), trigger_id=text("trigger_id"), account=text("account"), agent_id=text("agent_id"),
        firing_key=text("firing_key"), activity_key=text("activity_key"), summary=text("summary"),
        status=sa.literal_column(f"'{CREATED}'"), matched=binary("matched"), cause_run_id=text("cause_run_id"),
        fired_at=NOW, context=binary("context"), continuation=binary("continuation"), next_at=param("next_at"),
    )
    .returning(*_f)
)  # fmt: skip
_clocked = sql(
    sa.update(triggers)
    .where(_t.id == text("id"))
    .values(
        last_checked_at=NOW,
        last_fired_at=param("last_fired_at"),
        enabled=param("enabled", sa.Boolean),
        due_at=param("due_at"),
    )
)
_looked = sql(sa.update(triggers).where(_t.id == text("id")).values(last_checked_at=NOW, due_at=param("due_at")))
_checked = sql(sa.update(triggers).where(_t.id == text("id")).values(last_checked_at=NOW))
_fired = sql(
    sa.update(triggers)
    .where(_t.id == text("trigger_id"))
    .values(last_fired_at=sa.func.greatest(sa.func.coalesce(_t.last_fired_at, 0), param("at")), last_error=None)
)
_faulty = sql(
    sa.update(triggers)
    .where(_t.id == text("trigger_id"))
    .values(last_error=text("error"))
    .returning(_t.account, _t.agent_id)
)
_done = sql(
    sa.update(trigger_firings)
    .where(_f.id == text("id"))
    .values(
        status=text("status"), error=text("error"), session_id=text("session_id"), next_at=None, context=None,
        continuation=None,
    )
)  # fmt: skip
_run_failed = sql(
    sa.update(trigger_firings)
    .where(_f.id == text("id"), _f.status == CREATED)
    .values(status=sa.literal_column(f"'{ERROR}'"), error=text("error"))
    .returning(_f.trigger_id)
)
_left = sa.select(_f.id).where(_f.next_at <= NOW).order_by(_f.next_at).limit(_ROWS).with_for_update(skip_locked=True)


def _later(tries: Any) -> Any:
    doubled = param("first_ms") * sa.cast(sa.func.power(2, sa.func.least(tries, 16)), sa.BigInteger)
    return NOW + sa.func.least(_BACKOFF_MAX_MS, doubled)


_take_left = sql(
    sa.update(trigger_firings)
    .where(_f.id.in_(_left))
    .values(next_at=_later(_f.tries), tries=_f.tries + 1)
    .returning(*_f)
)
_left_deletions = (
    sa.select(_d.trigger_id)
    .where(_d.next_at <= NOW)
    .order_by(_d.next_at)
    .limit(_ROWS)
    .with_for_update(skip_locked=True)
)
_take_deletions = sql(
    sa.update(deletions)
    .where(_d.trigger_id.in_(_left_deletions))
    .values(next_at=_later(_d.tries), tries=_d.tries + 1)
    .returning(_d.trigger_id)
)
_forgotten = sql(sa.delete(deletions).where(_d.trigger_id == text("id")))
_cause = sql(sa.select(_f.trigger_id, _f.cause_run_id).where(_f.id == text("id")))

Decide = Callable[[Row], Activation | None]
"""From a locked trigger to what fires it now, if anything does."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of an activation: the new firing's row, or None for one whose key has fired before."""

    firing: Row | None


class FiringStore:
    """Firings of one database. `now` gives Unix milliseconds, `sweep_ms` is how long who admits has to carry it out."""

    def __init__(self, db: Database, outbox: Outbox, *, now: Callable[[], int], sweep_ms: int) -> None:
        self._db, self._outbox, self._now, self._sweep_ms = db, outbox, now, sweep_ms

    async def of_account(self, account: str, kind: str) -> list[Row]:
        """Enabled triggers of an account with a source of a type, oldest first."""
        return list(await self._db.fetch(_of_account, account=account, kind=kind))

    async def accounts_with(self, kind: str, accounts: Iterable[str]) -> frozenset[str]:
        """Those of the accounts that have an enabled trigger with a source of a type."""
        rows = await self._db.fetch(_accounts, accounts=sorted(set(accounts)), kind=kind)
        return frozenset(row["account"] for row in rows)

    async def due(self, limit: int) -> list[str]:
        """Ids of triggers that the clock is to look at, oldest first."""
        return [row["id"] for row in await self._db.fetch(_due, now=self._now(), limit=limit)]

    async def admit(self, trigger_id: str, decide: Decide) -> Admitted | None:
        """Record the firing that `decide` asks for, once by its key; None when it asks for none.

        The trigger is locked meanwhile; one that is gone or off fires never. Raises Conflict when the key came with
        another digest before.
        """
        now = self._now()
        async with self._db.transaction() as tx:
            row = await tx.fetchrow(LOCK, id=trigger_id)
            if row is None or not row["enabled"]:
                return None
            activation = decide(row)
            await tx.execute(_checked, id=trigger_id, now=now)
            if activation is None:
                return None
            return Admitted(await self.record(tx, row, activation, now))

    async def admit_due(self, trigger_id: str) -> Row | None:
        """Record the firing of a schedule that is due, and move it on; None when another monitor does, or has."""
        now = self._now()
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(_lock_free, id=trigger_id)
            if row is None or not row["enabled"] or row["due_at"] is None or row["due_at"] > now:
                return None
            source = msgspec.json.decode(row["source"])
            if source["type"] != SCHEDULE:
                return None
            schedule = source["schedule"]
            at = schedules.due(schedule, row["created_at"], row["last_fired_at"], now)
            if at is None:
                # The calendar has changed since its time was worked out.
                await tx.execute(_looked, id=trigger_id, due_at=await next_due(tx, row, row["last_fired_at"]), now=now)
                return None
            activation = Activation(
                key=schedules.firing_key(trigger_id, at),
                event=schedules.event(schedule, at, now),
                summary=schedules.summary(schedule, at),
                title=schedules.title(schedule, at),
            )
            firing = await self.record(tx, row, activation, now)
            once = schedule["kind"] == schedules.ONCE
            fired_at = schedules.fired_at(at, now)
            await tx.execute(
                _clocked,
                id=trigger_id,
                last_fired_at=fired_at,
                enabled=not once,
                due_at=None if once else await next_due(tx, row, fired_at),
                now=now,
            )
            if once:
                hint(tx, "trigger-updated", row["account"], row["agent_id"])
            return firing

    async def record(self, tx: Tx, row: Row, activation: Activation, now: int) -> Row | None:
        """Record the firing of a locked trigger; None when its key has fired before. Raises Conflict as `admit`."""
        key = _storable(activation.key)
        if not await self._claim(tx, row["id"], key, activation.digest, now):
            return None
        firing_id = str(uuid.uuid4())
        prompt = msgspec.json.decode(row["prompt"])
        fired = Fired(row["id"], row["name"], msgspec.json.decode(row["source"]), prompt, blocks_to_markdown(prompt))
        told = {"title": activation.title, **context(fired, firing_id, now, activation)}
        return await tx.fetchrow(
            _new,
            id=firing_id,
            trigger_id=row["id"],
            account=row["account"],
            agent_id=row["agent_id"],
            firing_key=key,
            activity_key=None if activation.activity_key is None else _storable(activation.activity_key),
            summary=_storable(activation.summary),
            matched=None if activation.matched is None else json_bytes(activation.matched),
            cause_run_id=activation.cause_run_id,
            context=json_bytes(told),
            continuation=row["continuation"],
            next_at=now + self._sweep_ms,
            now=now,
        )

    async def _claim(self, tx: Tx, trigger_id: str, key: str, digest: bytes | None, now: int) -> bool:
        taken = await tx.fetchval(_claim, trigger_id=trigger_id, firing_key=key, digest=digest, now=now)
        if taken is not None:
            return True
        if digest is not None and await tx.fetchval(_claimed, trigger_id=trigger_id, firing_key=key) != digest:
            raise Conflict("This idempotency key was used for another delivery")
        return False

    async def take_left(self) -> list[Row]:
        """Firings that nobody has carried out in time, each to one process; they come again after a growing pause."""
        return list(await self._db.fetch(_take_left, now=self._now(), first_ms=self._sweep_ms))

    async def started(self, firing: Row, session_id: str) -> None:
        """It has started a session."""
        await self._finish(firing, CREATED, session_id=session_id)

    async def woke(self, firing: Row, delivered: bool) -> None:
        """It has woken a run, or nobody was listening."""
        await self._finish(firing, DELIVERED if delivered else NO_LISTENER)

    async def failed(self, firing: Row, error: str) -> None:
        """It could not do what it is for."""
        await self._finish(firing, ERROR, error=error)

    async def _finish(
        self, firing: Row, status: str, *, session_id: str | None = None, error: str | None = None
    ) -> None:
        shown = None if error is None else _storable(error)[:_ERROR_CHARS]
        async with self._outbox.transaction() as tx:
            # The trigger before its firing, as a deletion locks them.
            if shown is not None:
                known = await self._blame(tx, firing["trigger_id"], shown)
            elif status == NO_LISTENER:
                known = 1
            else:
                # A schedule's rhythm stays what it became when it was admitted.
                known = await tx.execute(_fired, trigger_id=firing["trigger_id"], at=firing["fired_at"])
            await tx.execute(_done, id=firing["id"], status=status, error=shown, session_id=session_id)
            if not known and session_id is not None:
                # Deleted in between: the session may have come after it was told to forget.
                await tx.execute(FORGET, id=firing["trigger_id"], now=self._now())

    async def run_failed(self, firing_id: str, error: str) -> None:
        """The run that it started has failed for good; the session stays."""
        shown = _storable(error)[:_ERROR_CHARS]
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(_cause, id=firing_id)
            if row is None:
                return
            await tx.fetchrow(LOCK, id=row["trigger_id"])
            if await tx.fetchrow(_run_failed, id=firing_id, error=shown) is not None:
                await self._blame(tx, row["trigger_id"], shown)

    async def _blame(self, tx: Tx, trigger_id: str, error: str) -> int:
        row = await tx.fetchrow(_faulty, trigger_id=trigger_id, error=error)
        if row is not None:
            hint(tx, "trigger-updated", row["account"], row["agent_id"])
        return 0 if row is None else 1

    async def cause(self, firing_id: str) -> tuple[str, str | None] | None:
        """The trigger of a firing, and the run whose end was its cause; None when the firing is gone."""
        row = await self._db.fetchrow(_cause, id=firing_id)
        return None if row is None else (row["trigger_id"], row["cause_run_id"])

    async def drop_agent(self, agent_id: str) -> None:
        """Delete all triggers of an agent that is gone."""
        await self._db.execute(DROP_AGENT, agent_id=agent_id)

    async def take_deletions(self) -> list[str]:
        """Ids of deleted triggers that sessions are to forget, each to one process; they come again."""
        rows = await self._db.fetch(_take_deletions, now=self._now(), first_ms=self._sweep_ms)
        return [row["trigger_id"] for row in rows]

    async def forgotten(self, trigger_id: str) -> None:
        """Sessions has forgotten a deleted trigger."""
        await self._db.execute(_forgotten, id=trigger_id)


def _storable(value: str) -> str:
    # PostgreSQL text cannot hold NUL, nor UTF-8 half a surrogate pair.
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
