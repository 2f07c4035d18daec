"""Sessions that triggers start, and what they were started by."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.errors import NotFound
from libs.store import Database, Outbox, Tx, param, sql
from services.sessions.domain import triggered
from services.sessions.store import changes
from services.sessions.store.rows import NO_CHILDREN, NOW, SESSION, Row, session_of, start_of, text, touched
from services.sessions.store.tables import agents, session_events, session_triggers, session_turns, sessions

_s, _t, _a, _x = sessions.c, session_turns.c, agents.c, session_triggers.c
_ONE = sa.literal_column("1")

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
        title_source=sa.literal_column("'system'"), status=sa.literal_column("'streaming'"), run_id=text("run_id"),
        started_by_trigger=param("summary", sa.LargeBinary), last_seq=_ONE, turns=_ONE, live_turns=_ONE,
        created_at=NOW, updated_at=NOW,
    )
    .returning(*_s, NO_CHILDREN)
)  # fmt: skip
_started_by = sql(
    insert(session_triggers).values(
        session_id=text("id"), trigger_id=text("trigger_id"), context=param("context", sa.LargeBinary)
    )
)
_event = sql(
    insert(session_events).values(
        session_id=text("id"), seq=_ONE, id=text("event_id"), payload=param("payload", sa.LargeBinary), created_at=NOW
    )
)
_turn = sql(
    insert(session_turns)
    .values(
        run_id=text("run_id"), session_id=text("id"), agent_id=text("agent_id"), owner=text("owner"), number=_ONE,
        queued_behind=sa.false(), retry=sa.false(), origin=sa.literal_column("'trigger'"), title=text("title"),
        event_ids=param("event_ids", ARRAY(sa.Text)), created_at=NOW, next_start_at=param("start_at"),
    )
    .on_conflict_do_nothing()
    .returning(*_t)
)  # fmt: skip
_by_ids = sql(
    sa.select(*SESSION).where(_s.id == sa.any_(param("ids", ARRAY(sa.Text))), _s.agent_id == text("agent_id"))
)
_context = sql(
    sa.select(_x.context, _t.status, _t.error_message)
    .select_from(
        session_triggers.join(sessions, _s.id == _x.session_id).outerjoin(session_turns, _t.run_id == _s.run_id)
    )
    .where(_x.session_id == text("id"))
)
_forget = sql(sa.delete(session_triggers).where(_x.trigger_id == text("trigger_id")).returning(_x.session_id))
_unmark = sql(
    sa.update(sessions)
    .where(_s.id == sa.any_(param("ids", ARRAY(sa.Text))))
    .values(started_by_trigger=None, **touched(sessions))
    .returning(*SESSION)
)


@dataclass(frozen=True, slots=True)
class Start:
    """The session of a firing. `message`, `summary` and `context` are JSON of the public types."""

    firing_id: str
    trigger_id: str
    owner: str
    agent_id: str
    title: str
    message: bytes
    summary: bytes
    context: bytes


class _Started(Exception):
    """The same firing has been quicker: roll back, then look it up."""


class TriggeredStore:
    """Triggered sessions of one database. `now` gives Unix ms, `sweep_ms` is how long runs has to start a turn."""

    def __init__(self, db: Database, outbox: Outbox, *, now: Callable[[], int], sweep_ms: int) -> None:
        self._db, self._outbox, self._now, self._sweep_ms = db, outbox, now, sweep_ms

    async def start(self, new: Start) -> pb.TurnStart:
        """Open the session of a firing with its message and its turn, once. Raises NotFound when the agent is gone."""
        run_id = triggered.run_id(new.firing_id)
        known = await self._db.fetchrow(_known, run_id=run_id)
        if known is None:
            try:
                async with self._outbox.transaction() as tx:
                    return await self._open(tx, new, run_id)
            except _Started:
                known = await self._db.fetchrow(_known, run_id=run_id)
                assert known is not None
        return start_of(known)

    async def _open(self, tx: Tx, new: Start, run_id: str) -> pb.TurnStart:
        if await tx.fetchrow(_agent, agent_id=new.agent_id, owner=new.owner) is None:
            raise NotFound("Agent not found")
        now, session_id, event_id = self._now(), str(uuid.uuid4()), str(uuid.uuid4())
        ours = {"id": session_id, "agent_id": new.agent_id, "owner": new.owner, "title": new.title, "run_id": run_id}
        row = await tx.fetchrow(_session, **ours, summary=new.summary, now=now)
        turn = await tx.fetchrow(_turn, **ours, event_ids=[event_id], start_at=now + self._sweep_ms, now=now)
        if turn is None:
            raise _Started
        assert row is not None
        await tx.execute(_event, id=session_id, event_id=event_id, payload=new.message, now=now)
        await tx.execute(_started_by, id=session_id, trigger_id=new.trigger_id, context=new.context)
        session = session_of(row)
        event = pb.SessionEvent(id=event_id, session_id=session_id, seq=1, payload=new.message, created_at=now)
        changes.session(tx, session)
        changes.session_hint(tx, "session-created", session)
        changes.appended(tx, new.owner, new.agent_id, [event])
        return start_of(turn)

    async def by_ids(self, agent_id: str, ids: Sequence[str]) -> list[Row]:
        """Sessions of an agent, in the order of their ids here, as far as they exist."""
        found = {row["id"]: row for row in await self._db.fetch(_by_ids, agent_id=agent_id, ids=list(ids))}
        return [found[session_id] for session_id in ids if session_id in found]

    async def context(self, session_id: str) -> bytes:
        """What started a session, with what became of it; empty when no trigger did that still exists."""
        row = await self._db.fetchrow(_context, id=session_id)
        return b"" if row is None else triggered.context(row["context"], row)

    async def forget(self, trigger_id: str) -> None:
        """The trigger is gone: no session says any more that it started it."""
        async with self._outbox.transaction() as tx:
            ids = [row["session_id"] for row in await tx.fetch(_forget, trigger_id=trigger_id)]
            for row in await tx.fetch(_unmark, ids=ids, now=self._now()) if ids else ():
                changes.session(tx, session_of(row))
