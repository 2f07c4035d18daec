"""The queue: starting, claiming, renewing, completing, giving back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec
import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as st
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs import events
from libs.store import Database, Outbox, Row, Tx, param, relaxed, sql
from services.runs.domain.waiting import Limits
from services.runs.store.dispatch import Dispatch
from services.runs.store.endings import MINE, Claim, Ending, Endings
from services.runs.store.linked import emit, lock_run
from services.runs.store.rows import run_of
from services.runs.store.tables import TERMINAL, runs

BUDGET_PAUSE = "budget-pause"
"""The wait of a run that has used up its time."""

r = runs.c


_NOW = param("now", sa.BigInteger)
_TOUCH = {"updated_at": sa.func.greatest(r.updated_at, _NOW), "version": r.version + 1}

START = sql(
    insert(runs)
    .values(
        id=param("id", sa.Text),
        account=param("account", sa.Text),
        root_run_id=param("root_run_id", sa.Text),
        parent_run_id=param("parent_run_id", sa.Text),
        parent_tool_call_id=param("parent_tool_call_id", sa.Text),
        depth=param("depth", sa.Integer),
        step_label=param("step_label", sa.Text),
        plan_step_id=param("plan_step_id", sa.Text),
        kind=sa.literal_column("'agent'"),
        agent_id=param("agent_id", sa.Text),
        session_id=param("session_id", sa.Text),
        origin=param("origin", sa.Text),
        title=param("title", sa.Text),
        queue=param("queue", sa.SmallInteger),
        status=sa.literal_column("'queued'"),
        max_failures=param("max_failures", sa.Integer),
        not_before=_NOW,
        notify=param("notify", sa.Text),
        budget_ms=param("budget_ms", sa.BigInteger),
        behind=param("behind", sa.Boolean),
        created_at=_NOW,
        updated_at=_NOW,
        version=sa.literal_column("1"),
    )
    .on_conflict_do_nothing()
    # Sessions starts a turn again whose run got lost, and the claim's commit carries this one to disk with it.
    .returning(runs, relaxed())
)
_notify = sql(
    sa.update(runs)
    .where(r.id == param("id", sa.Text))
    .values(notify=sa.case((param("notify", sa.Text) == "", r.notify), else_=param("notify", sa.Text)))
    .returning(runs)
)

# Of what comes before a run in its session and is not out of the way, the first: whichever it is, what takes it out of
# the way hands on to the next, and so on to the run.
_before = sql(
    sa.select(r.id)
    .where(
        r.session_id == param("session_id", sa.Text),
        r.status.in_(["queued", "claimed", "running"]),
        sa.tuple_(r.created_at, r.id) < sa.tuple_(param("created_at"), param("id", sa.Text)),
    )
    .order_by(r.created_at, r.id)
    .limit(1)
    .with_for_update()
)
_follow = sql(sa.update(runs).where(r.id == param("id", sa.Text)).values(followed=True))
_look_at = sql(sa.update(runs).where(r.id == param("id", sa.Text)).values(behind=False).returning(runs))
_next_due = sql(sa.select(sa.func.min(r.not_before)).where(r.status == "queued", r.not_before > _NOW))
# Locks in the order that a cancel locks in, so that neither waits for the other in a circle.
_held = (
    sa.select(r.id)
    .where(
        r.id == sa.any_(param("ids", ARRAY(sa.Text))),
        r.worker == param("worker", sa.Text),
        r.status.in_(["claimed", "running"]),
    )
    .order_by(r.created_at, r.id)
    .with_for_update()
    .cte("held")
)
_renew = sql(
    sa.update(runs)
    .where(r.id.in_(sa.select(_held.c.id)))
    .values(lease_until=param("lease_until", sa.BigInteger))
    .returning(r.id, r.attempt, r.cancel_requested)
)
_expired = (
    sa.select(r.id)
    .where(r.status.in_(["claimed", "running"]), r.lease_until < _NOW)
    .with_for_update(skip_locked=True)
    .cte("expired")
)
_expire = sql(
    sa.update(runs)
    .where(r.id.in_(sa.select(_expired.c.id)))
    .values(status="queued", lease_until=None, worker=None, not_before=_NOW, expiries=r.expiries + 1, **_TOUCH)
    .returning(runs)
)
_give_back = sql(
    sa.update(runs)
    .where(MINE)
    .values(
        status="queued",
        lease_until=None,
        worker=None,
        not_before=param("not_before", sa.BigInteger),
        failures=param("failures", sa.Integer),
        expiries=0,
        **_TOUCH,
    )
    .returning(runs)
)
_plan = sql(sa.update(runs).where(MINE).values(plan=param("plan", sa.LargeBinary), **_TOUCH).returning(runs))
_ensure_plan = sql(
    sa.update(runs)
    .where(r.id == param("id", sa.Text), r.session_id == param("session_id", sa.Text), r.plan.is_(None))
    .values(plan=param("plan", sa.LargeBinary), **_TOUCH)
    .returning(runs)
)
_usage = sql(sa.update(runs).where(MINE).values(usage=param("usage", sa.LargeBinary), expiries=0, **_TOUCH))
_keep = sql(
    sa.update(runs)
    .where(MINE)
    .values(
        output=param("output", sa.LargeBinary),
        unmet_obligations=param("unmet_obligations", sa.LargeBinary),
        usage=sa.func.coalesce(param("usage", sa.LargeBinary), r.usage),
    )
)
RESUME = sql(
    sa.update(runs)
    .where(r.id == param("id", sa.Text))
    .values(status="queued", wait=None, budget_ms=None, not_before=_NOW, **_TOUCH)
    .returning(runs)
)
_end_child = sql(
    sa.update(runs)
    .where(r.id == param("id", sa.Text), r.status.not_in(TERMINAL))
    .values(status="canceled", cancel_requested=True, finished_at=_NOW, answered=True, **_TOUCH)
    .returning(runs)
)


async def start_behind(tx: Tx, turn: st.TurnStart, notify: str, budget_ms: int, now: int) -> Row | None:
    """The run of a turn that was opened behind another one, unless there is one."""
    row = await tx.fetchrow(START, **{**start_values(turn, notify, budget_ms, now), "behind": True})
    if row is None:
        return None
    before = await tx.fetchval(_before, session_id=row["session_id"], created_at=row["created_at"], id=row["id"])
    if before is None:
        return await tx.fetchrow(_look_at, id=row["id"])
    await tx.execute(_follow, id=before)
    return row


async def start_child(tx: Tx, turn: st.TurnStart, notify: str, budget_ms: int, now: int) -> Row | None:
    """The run of a delegated turn, unless there is one; the parent's row is locked by this.

    It ends at once when the parent waits for nobody any more.
    """
    parent = await lock_run(tx, turn.parent_run_id)
    row = await tx.fetchrow(START, **start_values(turn, notify, budget_ms, now))
    if row is None or parent is None:
        return row
    awaited = bool(turn.parent_tool_call_id)
    if parent["cancel_requested"] or parent["status"] == "canceled" or (awaited and parent["status"] in TERMINAL):
        row = await tx.fetchrow(_end_child, id=row["id"], now=now)
    return row


def waits_for(row: Row) -> str:
    """The reason of a run's wait; empty without one."""
    return str(msgspec.json.decode(row["wait"])["reason"]) if row["wait"] else ""


def start_values(turn: st.TurnStart, notify: str, budget_ms: int, now: int) -> dict[str, Any]:
    """Values of START for a turn. `budget_ms` is 0 for a run that may take any time."""
    background = turn.queued_behind or turn.origin not in ("", "user")
    return {
        "id": turn.run_id,
        "account": turn.owner,
        "root_run_id": turn.root_run_id or turn.run_id,
        "parent_run_id": turn.parent_run_id or None,
        "parent_tool_call_id": turn.parent_tool_call_id or None,
        "depth": turn.depth,
        "step_label": turn.step_label or None,
        "plan_step_id": turn.plan_step_id or None,
        "agent_id": turn.agent_id,
        "session_id": turn.session_id,
        "origin": turn.origin or "user",
        "title": turn.title,
        "queue": 1 if background else 0,
        "max_failures": 3 if background else 1,
        "notify": notify,
        "budget_ms": budget_ms or None,
        "behind": False,
        "now": now,
    }


class Queue:
    """Queue operations of one process. `now` gives Unix milliseconds, new runs get `budget_ms` (0: any time)."""

    def __init__(
        self,
        db: Database,
        outbox: Outbox,
        *,
        lease_ms: int,
        now: Callable[[], int],
        limits: Limits | None = None,
        budget_ms: int = 0,
    ) -> None:
        self._db, self._outbox, self._lease, self._now, self._budget = db, outbox, lease_ms, now, budget_ms
        self._endings = Endings(outbox, now)
        self.dispatch = Dispatch(db, limits or Limits(), lease_ms=lease_ms, now=now)

    async def start(self, turn: st.TurnStart, notify: str) -> tuple[Row, bool]:
        """The run of a turn, created unless it exists; tells whether it is new.

        A turn that a message waits for is interactive and has one attempt; one queued behind another, or that nobody
        waits for, is background with three (limits.md, Runs and scripts).
        """
        if turn.parent_run_id:
            async with self._outbox.transaction() as tx:
                row = await start_child(tx, turn, notify, self._budget, self._now())
                emit(tx, [row] if row is not None else [])
        elif turn.queued_behind:
            async with self._outbox.transaction() as tx:
                row = await start_behind(tx, turn, notify, self._budget, self._now())
                emit(tx, [row] if row is not None else [])
        else:
            row = await self._db.fetchrow(START, **start_values(turn, notify, self._budget, self._now()))
            if row is not None:
                # Without the outbox: the claim that follows tells the run's state again.
                self._outbox.tell([events.run_changed(run_of(row))])
        if row is not None:
            return row, True
        known = await self._db.fetchrow(_notify, id=turn.run_id, notify=notify)
        if known is None:
            raise RuntimeError("a run row cannot vanish")
        return known, False

    async def claim(self, worker: str, slots: int) -> list[Row]:
        """Claim up to `slots` runs, fairly by account (store/dispatch.py)."""
        try:
            rows = await self.dispatch.claim(worker, slots)
        except asyncpg.UniqueViolationError:
            # A worker of an earlier release, which takes no lock, has just claimed a run of the same session.
            return []
        # Without the outbox: a claim that dies here is followed by the change that its lease running out makes.
        self._outbox.tell(events.run_changed(run_of(row)) for row in rows)
        return rows

    async def next_due(self) -> int | None:
        """When the next delayed run becomes due, in Unix milliseconds."""
        return await self._db.fetchval(_next_due, now=self._now())

    async def renew(self, worker: str, ids: Sequence[str]) -> dict[str, tuple[int, bool]]:
        """Renew the leases of these runs in one statement: id to (attempt, cancel requested) of those still held."""
        rows = await self._db.fetch(_renew, ids=list(ids), worker=worker, lease_until=self._now() + self._lease)
        return {row["id"]: (row["attempt"], row["cancel_requested"]) for row in rows}

    async def expire(self) -> int:
        """Queue again the runs whose lease has run out; returns how many."""
        async with self._outbox.transaction() as tx:
            rows = await tx.fetch(_expire, now=self._now())
            emit(tx, rows)
            return len(rows)

    async def give_back(self, run_id: str, attempt: int, *, not_before: int, failures: int) -> Row | None:
        """Queue a held run again, not before a time; None when the claim is no longer ours."""
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(
                _give_back, id=run_id, attempt=attempt, now=self._now(), not_before=not_before, failures=failures
            )
            emit(tx, [row] if row is not None else [])
            return row

    async def complete(
        self,
        run_id: str,
        attempt: int,
        ending: Ending,
        parent_run_id: str | None = None,
        *,
        seen: Row | None = None,
    ) -> Row | None:
        """End a held run; None when the claim is no longer ours (a later outcome never undoes an earlier one).

        With `parent_run_id`, its usage is added to the parent's. `seen` is the row as it was claimed: unless something
        has happened to it since, one statement does it.
        """
        return await self._endings.complete(Claim(run_id, attempt, parent_run_id), ending, seen)

    async def store_usage(self, run_id: str, attempt: int, used: bytes) -> None:
        """Keep the usage so far of a held run."""
        await self._db.execute(_usage, id=run_id, attempt=attempt, usage=used, now=self._now())

    async def keep(
        self, run_id: str, attempt: int, *, output: bytes | None, unmet: bytes | None, used: bytes | None
    ) -> None:
        """Keep what a held run is about to end with: a later claim finds it when this one dies in between."""
        await self._db.execute(_keep, id=run_id, attempt=attempt, output=output, unmet_obligations=unmet, usage=used)

    async def resume(self, run_id: str) -> Row | None:
        """Queue a run again that its budget paused, without a budget; None for any other."""
        async with self._outbox.transaction() as tx:
            row = await lock_run(tx, run_id)
            if row is None or row["status"] != "waiting" or waits_for(row) != BUDGET_PAUSE:
                return None
            row = await tx.fetchrow(RESUME, id=run_id, now=self._now())
            emit(tx, [row] if row is not None else [])
            return row

    async def store_plan(self, run_id: str, attempt: int, plan: Mapping[str, Any]) -> None:
        """Keep the settled plan of a held run with the run."""
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(_plan, id=run_id, attempt=attempt, now=self._now(), plan=msgspec.json.encode(plan))
            emit(tx, [row] if row is not None else [])

    async def ensure_plan(self, session_id: str, run_id: str, plan: Mapping[str, Any]) -> None:
        """Keep a settled plan with the run of the session that owns it, unless that run has one."""
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(
                _ensure_plan, id=run_id, session_id=session_id, now=self._now(), plan=msgspec.json.encode(plan)
            )
            emit(tx, [row] if row is not None else [])
