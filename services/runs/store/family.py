"""Parents and children: parking on delegated calls, answering them, going on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as st
from sqlalchemy.dialects.postgresql import ARRAY

from libs.store import Database, Outbox, Row, param, sql
from services.runs.domain.plan import StepRuns
from services.runs.store.linked import emit, hand_on, lock_run
from services.runs.store.queue import BUDGET_PAUSE, start_child, waits_for
from services.runs.store.tables import TELLS_PARENT, TERMINAL, runs

r = runs.c


_NOW = param("now", sa.BigInteger)
_TOUCH = {"updated_at": sa.func.greatest(r.updated_at, _NOW), "version": r.version + 1}
_parent = runs.alias("parent")

_open_calls = sql(
    sa.select(sa.func.count()).where(
        r.parent_run_id == param("id", sa.Text),
        r.parent_tool_call_id == sa.any_(param("calls", ARRAY(sa.Text))),
        ~r.answered,
    )
)
_park = sql(
    sa.update(runs)
    .where(r.id == param("id", sa.Text), r.attempt == param("attempt", sa.BigInteger), r.status == "running")
    .values(
        status=param("status", sa.Text),
        wait=param("wait", sa.LargeBinary),
        wait_calls=param("calls", ARRAY(sa.Text)),
        usage=sa.func.coalesce(param("usage", sa.LargeBinary), r.usage),
        expiries=0,
        lease_until=None,
        worker=None,
        not_before=_NOW,
        **_TOUCH,
    )
    .returning(runs)
)
_go_on = sql(
    sa.update(runs)
    .where(r.id == param("id", sa.Text))
    .values(
        status=param("status", sa.Text),
        wait=param("wait", sa.LargeBinary),
        not_before=_NOW,
        failures=0,
        **_TOUCH,
    )
    .returning(runs)
)
_unanswered = sql(
    sa.select(runs, _parent.c.session_id.label("parent_session"), _parent.c.status.label("parent_status"))
    .select_from(runs.join(_parent, _parent.c.id == r.parent_run_id))
    .where(TELLS_PARENT, ~r.answered, r.finished_at.is_not(None), r.finished_at <= _NOW)
    .order_by(r.finished_at)
    .limit(50)
)
_answered = sql(sa.update(runs).where(r.id == param("id", sa.Text)).values(answered=True))
_steps = sql(
    sa.select(
        r.plan_step_id,
        r.step_label,
        sa.func.bool_and(r.status == "succeeded").label("done"),
        sa.func.bool_or(r.status.not_in(TERMINAL)).label("live"),
    )
    .select_from(runs.join(_parent, _parent.c.id == r.parent_run_id))
    .where(
        r.root_run_id == param("root", sa.Text),
        _parent.c.session_id == param("session_id", sa.Text),
        r.plan_step_id.is_not(None),
    )
    .group_by(r.plan_step_id, r.step_label)
)
_awaited = sql(sa.select(r.id).where(r.parent_run_id == param("id", sa.Text), r.parent_tool_call_id.is_not(None)))
_live_beside = sql(
    sa.select(
        sa.exists().where(
            r.session_id == param("session_id", sa.Text), r.id != param("id", sa.Text), r.status.not_in(TERMINAL)
        )
    )
)
_live_below = sql(sa.select(sa.func.count()).where(r.parent_run_id == param("id", sa.Text), r.status.not_in(TERMINAL)))


@dataclass(frozen=True, slots=True)
class Park:
    """A run that waits for delegated calls: the children to start, the calls, and the usage so far (JSON).

    With a `pause` it waits for a signal, having used up its time; the text says so.
    """

    children: Sequence[st.TurnStart] = ()
    calls: Sequence[str] = ()
    usage: bytes | None = None
    pause: str = ""


class Family:
    """Trees of runs. `now` gives Unix milliseconds, `budget_ms` is what new runs get (0: any time)."""

    def __init__(self, db: Database, outbox: Outbox, now: Callable[[], int], budget_ms: int = 0) -> None:
        self._db, self._outbox, self._now, self._budget = db, outbox, now, budget_ms

    async def awaited(self, run_id: str) -> set[str]:
        """Ids of the runs that a run has delegated and waits or waited for."""
        return {row["id"] for row in await self._db.fetch(_awaited, id=run_id)}

    async def live_beside(self, session_id: str, run_id: str) -> bool:
        """Whether a session has another run that is not over."""
        return await self._db.fetchval(_live_beside, session_id=session_id, id=run_id)

    async def live_children(self, run_id: str) -> int:
        """How many of them are not over."""
        return await self._db.fetchval(_live_below, id=run_id)

    async def start(self, child: st.TurnStart) -> None:
        """Queue a detached child."""
        async with self._outbox.transaction() as tx:
            row = await start_child(tx, child, "", self._budget, self._now())
            emit(tx, [row] if row is not None else [])

    async def park(self, run_id: str, attempt: int, park: Park) -> Row | None:
        """Start the children and let the run wait for their answers, in one transaction.

        The run is queued again at once when all answers are there already. Returns its row, which is still running
        when a cancel reached it: then the children are canceled with it. None when the claim is no longer ours.
        """
        async with self._outbox.transaction() as tx:
            held = await lock_run(tx, run_id)
            if held is None or held["attempt"] != attempt or held["status"] != "running":
                return None
            for child in park.children:
                started = await start_child(tx, child, "", self._budget, self._now())
                emit(tx, [started] if started is not None else [])
            if held["cancel_requested"]:
                return held
            calls = list(park.calls)
            pending = await tx.fetchval(_open_calls, id=run_id, calls=calls)
            wait = msgspec.json.encode({"reason": BUDGET_PAUSE, "label": park.pause}) if park.pause else _wait(pending)
            row = await tx.fetchrow(
                _park,
                id=run_id,
                attempt=attempt,
                status="waiting" if wait else "queued",
                wait=wait,
                calls=calls,
                usage=park.usage,
                now=self._now(),
            )
            await hand_on(tx, row)
            emit(tx, [row] if row is not None else [])
            return row

    async def unanswered(self) -> list[Row]:
        """Terminal runs of which the parent's session is still to be told, with that session and the parent's status.

        They answer a call, or work on a plan step, or both.
        """
        return list(await self._db.fetch(_unanswered, now=self._now()))

    async def steps(self, session_id: str, root_run_id: str) -> StepRuns:
        """How the runs of a tree stand that work on plan steps of a session."""
        rows = await self._db.fetch(_steps, session_id=session_id, root=root_run_id)
        return StepRuns(
            done=frozenset((row["plan_step_id"], row["step_label"] or "") for row in rows if row["done"]),
            live=frozenset((row["plan_step_id"], row["step_label"] or "") for row in rows if row["live"]),
        )

    async def answered(self, child: Row) -> Row | None:
        """A child's result stands in its parent's log: the parent goes on when that was the last it waited for.

        Returns the parent's row when it changed.
        """
        async with self._outbox.transaction() as tx:
            parent = await lock_run(tx, child["parent_run_id"])
            await tx.execute(_answered, id=child["id"])
            if parent is None or parent["status"] != "waiting" or waits_for(parent) != "children":
                return None
            pending = await tx.fetchval(_open_calls, id=parent["id"], calls=parent["wait_calls"])
            row = await tx.fetchrow(
                _go_on,
                id=parent["id"],
                status="waiting" if pending else "queued",
                wait=_wait(pending),
                now=self._now(),
            )
            emit(tx, [row] if row is not None else [])
            return row


def _wait(pending: int) -> bytes | None:
    return msgspec.json.encode({"reason": "children", "pendingChildren": pending}) if pending else None
