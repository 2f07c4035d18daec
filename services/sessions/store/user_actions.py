"""What people do in a session with verbs: the call, its result, and the lease in between."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.errors import Conflict, NotFound
from libs.store import Database, Outbox, Tx, param, sql
from services.sessions.domain import user_actions as rules
from services.sessions.store import changes
from services.sessions.store.rows import EVENT, NOW, SESSION, Row, event_of, number, session_of, text
from services.sessions.store.tables import agents, session_events, sessions, user_actions

_ROWS = 100

_s, _a, _e, _u = sessions.c, agents.c, session_events.c, user_actions.c
_ID = text("session_id")

# The session's row is changed first, as by a message: which of the two comes first is exact.
_opened = (
    sa.update(sessions)
    .where(_s.id == _ID, _s.live_turns == sa.literal_column("0"), _a.id == _s.agent_id)
    .values(last_seq=_s.last_seq + 1, user_actions=_s.user_actions + 1)
    .returning(*SESSION, _a.definition)
    .cte("opened")
)
_call = (
    insert(session_events)
    .from_select(
        ["session_id", "seq", "id", "payload", "created_at"],
        sa.select(_opened.c.id, _opened.c.last_seq, text("event_id"), param("payload", sa.LargeBinary), NOW),
    )
    .cte("call")
)
_action = (
    insert(user_actions)
    .from_select(
        ["id", "session_id", "verb", "created_at", "expires_at"],
        sa.select(text("id"), _opened.c.id, text("verb"), NOW, number("expires_at")).select_from(_opened),
    )
    .cte("action")
)
_begin = sql(sa.select(*_opened.c).add_cte(_call).add_cte(_action))
_exists = sql(sa.select(_s.id).where(_s.id == _ID))
_renew = sql(
    sa.update(user_actions)
    .where(_u.id == sa.any_(param("ids", ARRAY(sa.Text))))
    .values(expires_at=number("expires_at"))
)
_lock = sql(sa.select(_s.id).where(_s.id == _ID).with_for_update(key_share=True))
_take = sql(sa.delete(user_actions).where(_u.id == text("id"), _u.expires_at < number("before")).returning(_u.id))
_stored = sql(sa.select(*EVENT).where(_e.run_id == text("id"), _e.step == rules.RESULT_STEP))
_closed = (
    sa.update(sessions)
    .where(_s.id == _ID)
    .values(last_seq=_s.last_seq + 1, user_actions=_s.user_actions - 1)
    .returning(*SESSION)
    .cte("closed")
)
# Named like a step of a run, the result is found again when it comes a second time.
_result = (
    insert(session_events)
    .from_select(
        ["session_id", "seq", "id", "payload", "run_id", "step", "created_at"],
        sa.select(
            _closed.c.id, _closed.c.last_seq, text("event_id"), param("payload", sa.LargeBinary), text("id"),
            sa.literal_column(f"'{rules.RESULT_STEP}'"), NOW,
        ),
    )
    .cte("result")
)  # fmt: skip
_finish = sql(sa.select(*_closed.c).add_cte(_result))
_due = sql(sa.select(_u.id, _u.session_id, _u.verb).where(_u.expires_at < NOW).order_by(_u.expires_at).limit(_ROWS))

_ANY_TIME = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Action:
    """An action whose call is in the log."""

    tool_call_id: str
    session: Row


class UserActionStore:
    """Actions of one database. `now` gives Unix milliseconds, `lease_ms` is how long an action holds unrenewed."""

    def __init__(self, db: Database, outbox: Outbox, *, now: Callable[[], int], lease_ms: int) -> None:
        self._db, self._outbox, self._now, self.lease_ms = db, outbox, now, lease_ms

    async def begin(self, session_id: str, verb: str, given: bytes) -> Action:
        """Append a call (`given` is JSON of its input); the session takes no message until `finish`.

        Raises NotFound for a deleted session, Conflict while a turn is live.
        """
        now, call = self._now(), rules.call_id()
        payload, event_id = rules.call_event(call, verb, given), str(uuid.uuid4())
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(
                _begin,
                session_id=session_id,
                id=call,
                verb=verb,
                event_id=event_id,
                payload=payload,
                now=now,
                expires_at=now + self.lease_ms,
            )
            if row is None:
                if await tx.fetchrow(_exists, session_id=session_id) is None:
                    raise NotFound("Session not found")
                raise Conflict(rules.TURN_LIVE)
            _tell(tx, row, event_id, payload, now)
            return Action(call, row)

    async def renew(self, ids: Sequence[str]) -> None:
        """Say that actions are still being executed."""
        await self._db.execute(_renew, ids=list(ids), expires_at=self._now() + self.lease_ms)

    async def finish(self, tool_call_id: str, session_id: str, payload: bytes) -> pb.SessionEvent:
        """Append a result, once; returns the event that stands. Raises NotFound for a deleted session."""
        event = await self._close(tool_call_id, session_id, payload, before=_ANY_TIME)
        if event is None:
            raise NotFound("Session not found")
        return event

    async def give_up(self) -> int:
        """Answer the actions that nobody has renewed; returns how many."""
        due = await self._db.fetch(_due, now=self._now())
        for row in due:
            payload = rules.given_up(row["id"], row["verb"])
            await self._close(row["id"], row["session_id"], payload, before=self._now())
        return len(due)

    async def _close(self, call: str, session_id: str, payload: bytes, *, before: int) -> pb.SessionEvent | None:
        now, event_id = self._now(), str(uuid.uuid4())
        async with self._outbox.transaction() as tx:
            if await tx.fetchrow(_lock, session_id=session_id) is None:
                return None
            if await tx.fetchrow(_take, id=call, before=before) is None:
                stored = await tx.fetchrow(_stored, id=call)
                return None if stored is None else event_of(stored)
            row = await tx.fetchrow(
                _finish, session_id=session_id, id=call, event_id=event_id, payload=payload, now=now
            )
            assert row is not None
            return _tell(tx, row, event_id, payload, now)


def _tell(tx: Tx, row: Row, event_id: str, payload: bytes, now: int) -> pb.SessionEvent:
    session = session_of(row)
    event = pb.SessionEvent(id=event_id, session_id=session.id, seq=row["last_seq"], payload=payload, created_at=now)
    changes.appended(tx, session.account, session.agent_id, [event])
    changes.session_hint(tx, "session-event", session)
    return event
