"""Delegated work: a child's session with its first message and its turn, and the answer to the call behind it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.errors import Invalid
from libs.store import Database, Outbox, Tx, param, sql
from services.sessions.domain import children, turns
from services.sessions.store import changes, ledger
from services.sessions.store.rows import NO_CHILDREN, NOW, SESSION, Row, number, session_of, start_of, text
from services.sessions.store.rows import touched as row_touched
from services.sessions.store.tables import agents, session_events, session_turns, sessions

_s, _t, _a = sessions.c, session_turns.c, agents.c

_known = sql(sa.select(*_t).where(_t.run_id == text("run_id")))
_agent = sql(
    sa.select(_a.id)
    .where(_a.id == text("agent_id"), _a.owner == text("owner"))
    .with_for_update(read=True, key_share=True)
)
_session = sql(
    insert(sessions)
    .values(
        id=text("id"), agent_id=text("agent_id"), owner=text("owner"), title=text("title"),
        title_source=text("title_source"), status=sa.literal_column("'streaming'"), parent_session_id=text("parent"),
        run_id=text("run_id"), last_seq=sa.literal_column("1"), turns=sa.literal_column("1"),
        live_turns=sa.literal_column("1"), created_at=NOW, updated_at=NOW,
    )
    .returning(*_s, NO_CHILDREN)
)  # fmt: skip
_event = sql(
    insert(session_events).values(
        session_id=text("id"), seq=sa.literal_column("1"), id=text("event_id"),
        payload=param("payload", sa.LargeBinary), created_at=NOW,
    )
)  # fmt: skip
_turn = sql(
    insert(session_turns)
    .values(
        run_id=text("run_id"), session_id=text("id"), agent_id=text("agent_id"), owner=text("owner"),
        number=sa.literal_column("1"), queued_behind=sa.false(), retry=sa.false(),
        origin=sa.literal_column("'agent'"), title=text("title"), event_ids=param("event_ids", ARRAY(sa.Text)),
        parent_run_id=text("parent_run_id"), parent_tool_call_id=text("parent_tool_call_id"),
        root_run_id=text("root_run_id"), depth=param("depth", sa.Integer), spec=param("spec", sa.LargeBinary),
        plan_step_id=text("plan_step_id"), step_label=text("step_label"), created_at=NOW,
        next_start_at=number("start_at"),
    )
    .returning(*_t)
)  # fmt: skip
_touch = sql(sa.update(sessions).where(_s.id == text("id")).values(**row_touched(sessions)).returning(*SESSION))

_parent = sessions.alias("parent")
_chain = (
    sa.select(_s.id, _s.parent_session_id, sa.literal_column("0").label("depth"))
    .where(_s.id == text("id"))
    .cte("chain", recursive=True)
)
_chain = _chain.union_all(
    sa.select(_parent.c.id, _parent.c.parent_session_id, _chain.c.depth + 1).join(
        _chain, _parent.c.id == _chain.c.parent_session_id
    )
)
_depth = sql(sa.select(sa.func.max(_chain.c.depth)))
_detached = sql(
    sa.select(sa.func.count())
    .select_from(sessions.join(session_turns, _t.run_id == _s.run_id))
    .where(_s.parent_session_id == text("id"), _t.parent_tool_call_id == "", _t.parent_run_id != "")
)

_below = sessions.alias("below")
_spawned = sql(
    sa.select(*_t)
    .select_from(session_turns.join(_below, _below.c.id == _t.session_id))
    .where(
        _below.c.parent_session_id == text("id"),
        _below.c.run_id == _t.run_id,
        _t.parent_run_id == text("run_id"),
        _t.parent_tool_call_id != "",
    )
)
_parked = sql(
    sa.select(session_events.c.payload)
    .select_from(session_events.join(session_turns, _t.run_id == session_events.c.run_id))
    .where(
        session_events.c.session_id == text("id"),
        _t.session_id == text("id"),
        _t.state == turns.PARKED,
        ~_t.canceled,
    )
    .order_by(session_events.c.seq)
)
_by_run = sql(
    sa.select(session_events.c.payload)
    .where(session_events.c.run_id == text("run_id"), session_events.c.session_id == text("id"))
    .order_by(session_events.c.seq)
)
_set_plan = sql(
    sa.update(sessions)
    .where(_s.id == text("id"))
    .values(plan=param("plan", sa.LargeBinary), **row_touched(sessions))
    .returning(*SESSION)
)
_gone_spec = sql(sa.select(_t.spec).where(_t.run_id == text("run_id")))


@dataclass(frozen=True, slots=True)
class Child:
    """A child as its parent asks for it. `most_*` are 0 for an awaited child, whose limits runs keeps."""

    run_id: str
    agent_id: str
    title: str
    title_source: str
    message: bytes
    spec: bytes
    tool_call_id: str
    root_run_id: str
    depth: int
    plan_step_id: str = ""
    step_label: str = ""
    most_chain: int = 0
    most_detached: int = 0


class ChildStore:
    """Children of one database. `now` gives Unix milliseconds, `sweep_ms` is how long runs has to start one."""

    def __init__(self, db: Database, outbox: Outbox, *, now: Callable[[], int], sweep_ms: int) -> None:
        self._db, self._outbox, self._now, self._sweep_ms = db, outbox, now, sweep_ms

    async def spawn(self, run_id: str, attempt: int, child: Child) -> pb.TurnStart:
        """Open a child's session, first message and turn below the session of a run; once by the child's run id.

        Raises NotFound, StaleAttempt, Canceled, Invalid (no such agent of the account, chain too deep, too many).
        """
        async with self._outbox.transaction() as tx:
            locked = await ledger.lock(tx, run_id)
            turns.check_write(locked.turn, attempt)
            known = await tx.fetchrow(_known, run_id=child.run_id)
            if known is not None:
                return start_of(known)
            parent = locked.session
            agent_id = child.agent_id or parent["agent_id"]
            if await tx.fetchrow(_agent, agent_id=agent_id, owner=parent["owner"]) is None:
                raise Invalid(children.NO_AGENT)
            await self._check_limits(tx, parent["id"], child)
            return await self._open(tx, parent, agent_id, run_id, child)

    async def _check_limits(self, tx: Tx, session_id: str, child: Child) -> None:
        if child.most_chain and int(await tx.fetchval(_depth, id=session_id) or 0) + 1 > child.most_chain:
            raise Invalid(children.too_deep(child.most_chain))
        if child.most_detached and await tx.fetchval(_detached, id=session_id) >= child.most_detached:
            raise Invalid(children.too_many(child.most_detached))

    async def _open(self, tx: Tx, parent: Row, agent_id: str, run_id: str, child: Child) -> pb.TurnStart:
        now, session_id, event_id = self._now(), str(uuid.uuid4()), str(uuid.uuid4())
        row = await tx.fetchrow(
            _session,
            id=session_id,
            agent_id=agent_id,
            owner=parent["owner"],
            title=child.title,
            title_source=child.title_source,
            parent=parent["id"],
            run_id=child.run_id,
            now=now,
        )
        assert row is not None
        await tx.execute(_event, id=session_id, event_id=event_id, payload=child.message, now=now)
        turn = await tx.fetchrow(
            _turn,
            run_id=child.run_id,
            id=session_id,
            agent_id=agent_id,
            owner=parent["owner"],
            title=child.title,
            event_ids=[event_id],
            parent_run_id=run_id,
            parent_tool_call_id=child.tool_call_id,
            root_run_id=child.root_run_id,
            depth=child.depth,
            spec=child.spec or None,
            plan_step_id=child.plan_step_id,
            step_label=child.step_label,
            start_at=now + self._sweep_ms,
            now=now,
        )
        assert turn is not None
        session = session_of(row)
        event = pb.SessionEvent(id=event_id, session_id=session_id, seq=1, payload=child.message, created_at=now)
        changes.session(tx, session)
        changes.session_hint(tx, "session-created", session)
        changes.appended(tx, parent["owner"], agent_id, [event])
        counted = await tx.fetchrow(_touch, id=parent["id"], now=now)
        assert counted is not None
        changes.session(tx, session_of(counted))
        return start_of(turn)

    async def contract(self, run_id: str) -> bytes:
        """The delegation that a run's turn was opened with; empty without one."""
        row = await self._db.fetchrow(_gone_spec, run_id=run_id)
        return b"" if row is None or row["spec"] is None else row["spec"]

    async def answer(
        self, run_id: str, child_run_id: str, tool_call_id: str, payload: bytes, resolve_step_id: str
    ) -> bool:
        """Append the result of a delegated call; False when the turn that made it has ended. Raises NotFound."""
        step = ledger.step(children.answer_step(child_run_id), payload)
        async with self._outbox.transaction() as tx:
            locked = await ledger.lock(tx, run_id, [step], look=True)
            if locked.turn["state"] not in ("live", turns.PARKED) or locked.turn["canceled"]:
                return False
            calls = turns.open_calls(await calls_of(tx, locked.session["id"], run_id))
            # A call that was repaired meanwhile has its result: a second one would have no call to stand at.
            if step.step not in locked.stored and tool_call_id in calls:
                await ledger.write(tx, locked, [step], self._now(), session={}, turn={})
                changes.session_hint(tx, "session-event", ledger.session_message(locked))
            await self._resolve(tx, locked.session, resolve_step_id)
            return True

    async def resolve_step(self, run_id: str, step_id: str, label: str) -> None:
        """Mark the open plan step with this id and label as done by the runtime, if there is one. Raises NotFound."""
        async with self._outbox.transaction() as tx:
            locked = await ledger.lock(tx, run_id)
            await self._resolve(tx, locked.session, step_id, label)

    async def _resolve(self, tx: Tx, session: Row, step_id: str, label: str | None = None) -> None:
        if not step_id or session["plan"] is None:
            return
        plan = children.resolved(msgspec.json.decode(session["plan"]), step_id, self._now(), label)
        if plan is None:
            return
        row = await tx.fetchrow(_set_plan, id=session["id"], plan=msgspec.json.encode(plan), now=self._now())
        assert row is not None
        changed = session_of(row)
        changes.session(tx, changed)
        changes.session_hint(tx, "session-updated", changed)


async def spawned(tx: Tx, session_id: str, run_id: str) -> list[Row]:
    """Turns that answer calls of a run, as far as their sessions exist."""
    return list(await tx.fetch(_spawned, id=session_id, run_id=run_id))


async def calls_of(tx: Tx, session_id: str, run_id: str) -> list[bytes]:
    """Payloads that a run wrote into its session, among them its calls and their results."""
    return [row["payload"] for row in await tx.fetch(_by_run, run_id=run_id, id=session_id)]


async def parked_calls(tx: Tx, session_id: str) -> frozenset[str]:
    """Calls of a session that parked turns wait for."""
    rows = await tx.fetch(_parked, id=session_id)
    return frozenset(turns.open_calls(row["payload"] for row in rows))


def pending(spawned: Sequence[Row], unanswered: Collection[str]) -> list[pb.TurnStart]:
    """The children whose call stands without a result."""
    return [start_of(row) for row in spawned if row["parent_tool_call_id"] in unanswered]
