"""How a run begins, writes and ends its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from libs.errors import NotFound
from libs.store import Database, Draft, Emitter, Outbox, Tx, param, relaxed, sql
from services.sessions.domain import naming, turns
from services.sessions.store import changes, ledger
from services.sessions.store.children import ChildStore, parked_calls, pending, spawned
from services.sessions.store.ledger import Step
from services.sessions.store.log import read_events
from services.sessions.store.rows import SESSION, Row, number, outcome_of, session_of, text
from services.sessions.store.tables import agent_members, agents, session_turns, sessions

BEGUN_AGAIN_MS = 60_000
"""How long after it was begun a live turn is announced to runs again, in case its run was lost."""

PARKED_AGAIN_MS = 3_600_000
"""How often a parked turn is announced, in case its run was canceled while nobody could say so here."""

_s, _t, _a, _m = sessions.c, session_turns.c, agents.c, agent_members.c

ROSTER = (
    sa.select(sa.func.array_agg(aggregate_order_by(_m.account + " " + _m.role, _m.accepted_at, _m.account)))
    .where(_m.agent_id == _a.id, _m.status == "accepted")
    .correlate(agents)
    .scalar_subquery()
    .label("roster")
)
"""`<account> <role>` of the accepted members by time of joining; null without any. For statements that read agents."""

_begin = sql(
    sa.update(session_turns)
    .where(
        _t.run_id == text("run_id"),
        _t.state != "gone",
        _t.attempt <= number("attempt"),
        _s.id == _t.session_id,
        _a.id == _t.agent_id,
    )
    .values(attempt=number("attempt"), begun=True, next_start_at=number("later"))
    # There is nothing to fence off before the first attempt, so its fence need not reach the disk at once.
    .returning(*SESSION, *ledger.TURN, _a.definition, ROSTER, relaxed(_t.attempt <= sa.literal_column("1")))
)
_turn = sql(sa.select(*_t).where(_t.run_id == text("run_id")))
_cancel = sql(
    sa.update(session_turns)
    .where(_t.run_id == sa.any_(param("run_ids", ARRAY(sa.Text))), _t.state.in_(["live", turns.PARKED]))
    .values(canceled=True)
)
_name = sql(
    sa.update(sessions)
    .where(_s.id == text("session_id"))
    .values(
        title=text("title"),
        title_source=text("title_source"),
        description=text("description"),
        plan=param("plan", sa.LargeBinary),
        updated_at=number("updated_at"),
        version=number("version"),
    )
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Begun:
    """What a turn starts from."""

    session: Row
    turn: dict[str, Any]
    definition: bytes
    roster: list[tuple[str, str]]
    events: list[pb.SessionEvent]
    spec: bytes
    pending: list[pb.TurnStart]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ends; texts are public."""

    status: str
    error_message: str = ""
    error_status: int = 0
    stopped_text: str = ""


def roster_of(row: Row) -> list[tuple[str, str]]:
    """(account, role) of the accepted members by time of joining."""
    return [(account, role) for account, _, role in (entry.partition(" ") for entry in row["roster"] or ())]


class TurnStore:
    """Turns of one database. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, outbox: Outbox, kids: ChildStore, *, now: Callable[[], int]) -> None:
        self._db, self._outbox, self._children, self._now = db, outbox, kids, now
        self._single = ledger.at_once(outbox)

    async def begin(self, run_id: str, attempt: int, waiting: Collection[str]) -> Begun:
        """Fence older attempts off, answer calls that a dead attempt left open, and read what a turn needs.

        `waiting` holds tool calls of the session that a waiting run still waits for. Raises NotFound, StaleAttempt.
        """
        row = await self._db.fetchrow(_begin, run_id=run_id, attempt=attempt, later=self._now() + BEGUN_AGAIN_MS)
        if row is None:
            raise await self._why_not(run_id, attempt)
        turn = {name: row[f"turn_{name}"] for name in ledger.TURN_NAMES}
        if turn["state"] == turns.PARKED and not turn["canceled"]:
            row, turn = await self._resume(run_id, attempt, row)
        events = await read_events(self._db, row["id"])
        own: list[pb.TurnStart] = []
        writes = turn["state"] == "live" and not turn["canceled"]
        if writes and turns.repairs((event.payload for event in events), waiting):
            events, own = await self._repair(run_id, attempt, waiting)
        contract = turn["spec"] or b""
        if not contract and row["run_id"]:
            # A later run of a delegated session works under the contract of the run that created it.
            contract = await self._children.contract(row["run_id"])
        return Begun(row, turn, row["definition"], roster_of(row), events, contract, own)

    async def append(self, run_id: str, attempt: int, steps: Sequence[Step]) -> list[pb.SessionEvent]:
        """Append each step once; returns the stored events in the order of `steps`.

        Raises NotFound, StaleAttempt, Canceled.
        """

        async def work(tx: Tx, look: bool) -> list[pb.SessionEvent]:
            locked = await ledger.lock(tx, run_id, steps, look=look)
            turns.check_write(locked.turn, attempt)
            stored = await ledger.write(tx, locked, steps, self._now(), session={}, turn={"attempt": attempt})
            if any(step.step not in locked.stored for step in steps):
                changes.session_hint(tx, "session-event", ledger.session_message(locked))
            return stored

        return await self._once(work)

    async def finish(self, run_id: str, attempt: int, steps: Sequence[Step], ending: Ending) -> pb.TurnOutcome:
        """Append the last events, record the outcome and settle the session's status; repeating changes nothing.

        Attempt 0 ends a run that no worker holds: nothing is appended. Raises NotFound, StaleAttempt, Canceled.
        """
        if attempt == 0:
            steps = ()

        async def work(tx: Tx, look: bool) -> pb.TurnOutcome:
            locked = await ledger.lock(tx, run_id, steps, look=look)
            turn = locked.turn
            parks_again = turn["state"] == turns.PARKED and ending.status == turns.WAITING and not turn["canceled"]
            if turn["state"] == "done" or parks_again:
                return outcome_of(turn)
            turns.check_finish(locked.turn, attempt, ending.status)
            await ledger.carry_out(tx, self._ending(tx, locked, attempt, steps, ending))
            return outcome_of(locked.turn)

        return await self._at_once(run_id, attempt, steps, ending) or await self._once(work)

    async def cancel(self, run_ids: Sequence[str]) -> None:
        """Mark live turns as canceled."""
        await self._db.execute(_cancel, run_ids=list(run_ids))

    async def set_plan(self, run_id: str, attempt: int, plan: bytes) -> pb.Session:
        """Replace the plan (JSON; empty clears it). Raises NotFound, StaleAttempt, Canceled."""
        async with self._outbox.transaction() as tx:
            locked = await ledger.lock(tx, run_id)
            turns.check_write(locked.turn, attempt)
            return await self._change(tx, locked, plan=plan or None)

    async def describe(
        self, run_id: str, attempt: int, title: str | None, description: str | None, *, automatic: bool
    ) -> pb.Session:
        """Set title and description for the agent, or automatically.

        Raises NotFound, StaleAttempt, Canceled, Invalid.
        """
        async with self._outbox.transaction() as tx:
            locked = await ledger.lock(tx, run_id)
            session = locked.session
            now = naming.Named(session["title"], session["title_source"], session["description"])
            if automatic:
                named = naming.titled(now, title, description)
            else:
                turns.check_write(locked.turn, attempt)
                named = naming.described(now, title, description)
            return await self._change(
                tx, locked, title=named.title, title_source=named.source, description=named.description
            )

    async def _repair(
        self, run_id: str, attempt: int, waiting: Collection[str]
    ) -> tuple[list[pb.SessionEvent], list[pb.TurnStart]]:
        """Answer the calls that nobody will; returns the log, and the children of this turn that are still to answer.

        All of it is read under the session's lock: an answer that arrives meanwhile must not become a second one.
        """

        async def work(tx: Tx, look: bool) -> tuple[list[pb.SessionEvent], list[pb.TurnStart]]:
            locked = await ledger.lock(tx, run_id)
            turns.check_write(locked.turn, attempt)
            session_id = locked.session["id"]
            events = await read_events(tx, session_id)
            payloads = [event.payload for event in events]
            # What parked turns have delegated is answered by children, however long that takes, and so is what an
            # earlier attempt of this turn has.
            parked = await parked_calls(tx, session_id)
            own = pending(await spawned(tx, session_id, run_id), turns.open_calls(payloads))
            awaited = {*waiting, *parked, *(child.parent_tool_call_id for child in own)}
            steps = [ledger.step(*repair) for repair in turns.repairs(payloads, awaited)]
            if steps:
                locked = await ledger.lock(tx, run_id, steps, look=look)
                repaired = await ledger.write(tx, locked, steps, self._now(), session={}, turn={"attempt": attempt})
                known = {event.id for event in events}
                events += [event for event in repaired if event.id not in known]
                changes.session_hint(tx, "session-event", ledger.session_message(locked))
            return events, own

        return await self._once(work)

    async def _resume(self, run_id: str, attempt: int, begun: Row) -> tuple[Row, dict[str, Any]]:
        """Let a parked turn go on: it counts as live again."""
        async with self._outbox.transaction() as tx:
            locked = await ledger.lock(tx, run_id)
            turns.check_attempt(locked.turn, attempt)
            if locked.turn["state"] == turns.PARKED:
                now, session = self._now(), locked.session
                changed = session["status"] != "streaming"
                columns = {"live_turns": session["live_turns"] + 1, "status": "streaming"}
                await ledger.write(
                    tx,
                    locked,
                    [],
                    now,
                    session={**columns, **(ledger.touched(session, now) if changed else {})},
                    turn={"state": "live", "status": "", "attempt": attempt},
                )
                if changed:
                    changes.session(tx, ledger.session_message(locked))
        return {**begun, **locked.session}, locked.turn

    async def _at_once(self, run_id: str, attempt: int, steps: Sequence[Step], ending: Ending) -> pb.TurnOutcome | None:
        """End a turn that nothing stands in the way of, in two round trips; None when something does."""
        seen = await ledger.peek(self._db, run_id)
        if seen is None or not turns.is_plain_end(seen.turn, attempt, ending.status):
            return None
        draft, locked = Draft(), ledger.Locked(seen.session, seen.turn)
        writing = self._ending(draft, locked, attempt, steps, ending)
        written = await ledger.write_at_once(self._outbox, self._single, seen, draft, writing)
        return outcome_of(locked.turn) if written else None

    def _ending(
        self, told: Emitter, locked: ledger.Locked, attempt: int, steps: Sequence[Step], ending: Ending
    ) -> ledger.Writing:
        now, session, turn = self._now(), locked.session, locked.turn
        silent = not turn["assistant_event_id"] and not any(turns.is_assistant_message(s.payload) for s in steps)
        if ending.status == turns.CANCELED and attempt and silent and ending.stopped_text:
            steps = [*steps, Step(turns.STOPPED_STEP, turns.assistant_message(ending.stopped_text))]
        live = session["live_turns"] - (turn["state"] == "live")
        parks = ending.status == turns.WAITING
        status = turns.session_status(live, ending.status)
        changed = status != session["status"]
        writing = ledger.prepare(
            told,
            locked,
            steps,
            now,
            session={"live_turns": live, "status": status, **(ledger.touched(session, now) if changed else {})},
            turn={
                "state": turns.PARKED if parks else "done",
                "attempt": max(attempt, turn["attempt"]),
                "canceled": turn["canceled"] or ending.status == turns.CANCELED,
                "status": ending.status,
                "error_message": ending.error_message.replace("\0", "\ufffd"),
                "error_status": ending.error_status,
                "finished_at": None if parks else now,
                "next_start_at": now + PARKED_AGAIN_MS if parks else turn["next_start_at"],
            },
        )
        message = ledger.session_message(locked)
        if changed:
            changes.session(told, message)
        if any(step.step not in locked.stored for step in steps):
            changes.session_hint(told, "session-event", message)
        return writing

    async def _change(self, tx: Tx, locked: ledger.Locked, **columns: Any) -> pb.Session:
        before = locked.session
        if all(before[name] == value for name, value in columns.items()):
            return session_of(before)
        after = {**before, **columns, **ledger.touched(before, self._now())}
        names = ("title", "title_source", "description", "plan", "updated_at", "version")
        await tx.execute(_name, session_id=before["id"], **{name: after[name] for name in names})
        message = session_of(after)
        changes.session(tx, message)
        changes.session_hint(tx, "session-updated", message)
        return message

    async def _once(self, work: Callable[[Tx, bool], Awaitable[T]]) -> T:
        # Most steps are new, so they are looked for only after one was found to be stored.
        try:
            async with self._outbox.transaction() as tx:
                return await work(tx, False)
        except ledger.StepStored:
            async with self._outbox.transaction() as tx:
                return await work(tx, True)

    async def _why_not(self, run_id: str, attempt: int) -> Exception:
        turn = await self._db.fetchrow(_turn, run_id=run_id)
        if turn is not None:
            turns.check_attempt(turn, attempt)
        return NotFound("Session not found")
