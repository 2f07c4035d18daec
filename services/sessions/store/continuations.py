"""Sessions that go on in another one: successor, copied message, links and turns in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.errors import Invalid
from libs.protocol import json_bytes
from libs.store import Database, Outbox, Tx, param, sql
from services.sessions.domain import continuation, turns
from services.sessions.store import changes, ledger
from services.sessions.store.children import calls_of, parked_calls, pending, spawned
from services.sessions.store.log import NEW_EVENTS
from services.sessions.store.rows import (
    EVENT,
    NO_CHILDREN,
    NOW,
    SESSION,
    Row,
    number,
    outcome_of,
    session_of,
    start_of,
    text,
    touched,
)
from services.sessions.store.tables import attachments, continuations, session_events, session_turns, sessions

_s, _t, _e, _a, _c = sessions.c, session_turns.c, session_events.c, attachments.c, continuations.c
_IDS = param("ids", ARRAY(sa.Text))
_JSON = sa.LargeBinary

_known = sql(
    sa.select(_c.id, *_t)
    .select_from(continuations.join(session_turns, _t.session_id == _c.successor_id))
    .where(_c.run_id == text("run_id"), _t.number == sa.literal_column("1"))
)
_said_before = sql(
    sa.select(sa.exists().where(_c.predecessor_id == text("id"), _c.initiating_event_id == text("event_id")))
)
_messages = sql(sa.select(*EVENT).where(_e.session_id == text("id"), _e.id == sa.any_(_IDS)).order_by(_e.seq))
_cited = sql(
    sa.select(_s.id, _s.last_seq).where(
        _s.id == sa.any_(_IDS), _s.agent_id == text("agent_id"), _s.owner == text("owner")
    )
)
_successor = sql(
    insert(sessions)
    .values(
        id=text("id"), agent_id=text("agent_id"), owner=text("owner"), title=text("title"),
        title_source=sa.literal_column("'agent'"), description=text("description"),
        status=sa.literal_column("'streaming'"), plan=param("plan", _JSON),
        model_override=param("model_override", _JSON), continued_from=param("continued_from", _JSON),
        last_seq=number("last_seq"), turns=sa.literal_column("1"), live_turns=sa.literal_column("1"),
        created_at=NOW, updated_at=NOW,
    )
    .returning(*_s, NO_CHILDREN)
)  # fmt: skip
_events = sql(
    insert(session_events).from_select(
        ["session_id", "seq", "id", "payload", "created_at"],
        sa.select(text("session_id"), NEW_EVENTS.c.n, NEW_EVENTS.c.id, NEW_EVENTS.c.payload, NOW).select_from(
            NEW_EVENTS
        ),
    )
)
_turn = sql(
    insert(session_turns)
    .values(
        run_id=text("run_id"), session_id=text("session_id"), agent_id=text("agent_id"), owner=text("owner"),
        number=sa.literal_column("1"), queued_behind=sa.false(), retry=sa.false(), origin=text("origin"),
        title=text("title"), event_ids=param("event_ids", ARRAY(sa.Text)), created_at=NOW,
        next_start_at=number("start_at"),
    )
    .returning(*_t)
)  # fmt: skip
_share = sql(
    insert(attachments).from_select(
        ["session_id", "id", "name", "mime_type", "size", "created_at", "blob"],
        sa.select(text("successor_id"), _a.id, _a.name, _a.mime_type, _a.size, NOW, _a.blob).where(
            _a.session_id == text("session_id"), _a.id == sa.any_(_IDS)
        ),
        include_defaults=False,
    )
)
_record = sql(
    insert(continuations).values(
        id=text("id"), predecessor_id=text("predecessor_id"), successor_id=text("successor_id"),
        run_id=text("run_id"), initiating_event_id=text("event_id"), link=param("link", _JSON), created_at=NOW,
    )
)  # fmt: skip
_point = sql(
    sa.update(sessions).where(_s.id == text("id")).values(continued_to=param("link", _JSON), plan=param("plan", _JSON))
)
_told = sql(sa.update(session_turns).where(_t.run_id == text("run_id")).values(continued_to=text("successor_id")))

_touching = sa.or_(_c.predecessor_id == sa.any_(_IDS), _c.successor_id == sa.any_(_IDS))
_forget = sql(sa.delete(continuations).where(_touching).returning(_c.predecessor_id, _c.successor_id))
_newest = (
    sa.select(_c.link)
    .where(_c.predecessor_id == _s.id)
    .order_by(_c.created_at.desc(), _c.id.desc())
    .limit(1)
    .correlate(sessions)
    .scalar_subquery()
)
_no_successor = sql(
    sa.update(sessions)
    .where(_s.id == sa.any_(_IDS))
    .values(continued_to=_newest, **touched(sessions))
    .returning(*SESSION)
)
_no_predecessor = sql(
    sa.update(sessions)
    .where(_s.id == sa.any_(_IDS))
    .values(continued_from=None, **touched(sessions))
    .returning(*SESSION)
)


@dataclass(frozen=True, slots=True)
class Passage:
    """Events of a session that a handoff cites; an empty id is the session that is continued."""

    session_id: str
    from_seq: int
    to_seq: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A successor as its predecessor's agent asks for it. `handoff` is markdown, `plan` one of TRANSFERS."""

    tool_call_id: str
    result_step: str
    duration_ms: int
    reason: str
    title: str
    description: str
    handoff: str
    plan: str
    cited: Sequence[Passage] = ()


@dataclass(frozen=True, slots=True)
class Continued:
    """The successor's turn, and how the turn ended that continued."""

    id: str
    start: pb.TurnStart
    outcome: pb.TurnOutcome


class ContinuationStore:
    """Continues sessions. `now` gives Unix milliseconds, `sweep_ms` is how long the caller has to start the run."""

    def __init__(self, db: Database, outbox: Outbox, *, now: Callable[[], int], sweep_ms: int) -> None:
        self._db, self._outbox, self._now, self._sweep_ms = db, outbox, now, sweep_ms

    async def go_on(self, run_id: str, attempt: int, wanted: Wanted) -> Continued:
        """End the turn of a run and let a successor answer its message; a repeat gives what the first one made.

        Raises NotFound, StaleAttempt, Canceled, Invalid (with a text for the model).
        """
        async with self._outbox.transaction() as tx:
            locked = await ledger.lock(tx, run_id)
            turns.check_attempt(locked.turn, attempt)
            known = await tx.fetchrow(_known, run_id=run_id)
            if known is not None:
                return Continued(known["id"], start_of(known), outcome_of(locked.turn))
            turns.check_write(locked.turn, attempt)
            messages = await self._checked(tx, locked, wanted)
            return await self._go_on(tx, locked, attempt, wanted, messages)

    async def _checked(self, tx: Tx, locked: ledger.Locked, wanted: Wanted) -> Sequence[Row]:
        """The events of the message that the successor answers. Raises Invalid."""
        session, turn = locked.session, locked.turn
        run_id: str = turn["run_id"]
        calls = turns.open_calls(await calls_of(tx, session["id"], run_id))
        if pending(await spawned(tx, session["id"], run_id), calls) or await parked_calls(tx, session["id"]):
            raise Invalid(continuation.PENDING)
        messages = await tx.fetch(_messages, id=session["id"], ids=turn["event_ids"])
        if not messages or continuation.was_copied(row["payload"] for row in messages):
            raise Invalid(continuation.NOTHING_NEW)
        if await tx.fetchval(_said_before, id=session["id"], event_id=messages[0]["id"]):
            raise Invalid(continuation.NOTHING_NEW)
        cited = {passage.session_id or session["id"] for passage in wanted.cited}
        found = await tx.fetch(_cited, ids=sorted(cited), agent_id=session["agent_id"], owner=session["owner"])
        last = {row["id"]: row["last_seq"] for row in found}
        for passage in wanted.cited:
            session_id = passage.session_id or session["id"]
            if not 1 <= passage.from_seq <= passage.to_seq <= last.get(session_id, 0):
                raise Invalid(continuation.no_passage(session_id))
        return messages

    async def _go_on(
        self, tx: Tx, locked: ledger.Locked, attempt: int, wanted: Wanted, messages: Sequence[Row]
    ) -> Continued:
        now, before = self._now(), locked.session
        made, successor_id, run_id = (str(uuid.uuid4()) for _ in range(3))
        live = before["live_turns"] - 1
        last = live == 0
        own = None if before["plan"] is None else msgspec.json.decode(before["plan"])
        kept, carried = continuation.plans(own, wanted.plan, run_id, now, last=last)
        link = continuation.link(made, successor_id, wanted.title, wanted.reason, now)
        back = continuation.link(made, before["id"], before["title"], wanted.reason, now)

        result = continuation.answer(wanted.tool_call_id, made, successor_id, wanted.title, wanted.duration_ms)
        await ledger.write(
            tx,
            locked,
            [ledger.step(wanted.result_step, result)],
            now,
            session={
                "live_turns": live,
                "status": turns.session_status(live, turns.SUCCEEDED),
                **ledger.touched(before, now),
            },
            turn={"state": "done", "attempt": attempt, "status": turns.SUCCEEDED, "finished_at": now},
        )
        plan = None if kept is None else json_bytes(kept)
        await tx.execute(_point, id=before["id"], link=link, plan=plan)
        await tx.execute(_told, run_id=locked.turn["run_id"], successor_id=successor_id)
        locked.session = {**locked.session, "continued_to": link, "plan": plan}
        locked.turn = {**locked.turn, "continued_to": successor_id}

        row = await tx.fetchrow(
            _successor,
            id=successor_id,
            agent_id=before["agent_id"],
            owner=before["owner"],
            title=wanted.title,
            description=wanted.description,
            plan=None if carried is None else json_bytes(carried),
            model_override=before["model_override"],
            continued_from=back,
            last_seq=1 + len(messages),
            now=now,
        )
        assert row is not None
        copies = [continuation.copied(m["payload"], before["id"], m["id"], m["seq"], successor_id) for m in messages]
        stored = [
            pb.SessionEvent(id=str(uuid.uuid4()), session_id=successor_id, seq=n, payload=payload, created_at=now)
            for n, payload in enumerate([continuation.handoff(wanted.handoff), *copies], 1)
        ]
        await tx.execute(
            _events,
            session_id=successor_id,
            event_ids=[event.id for event in stored],
            payloads=[event.payload for event in stored],
            now=now,
        )
        files = continuation.attachment_ids(m["payload"] for m in messages)
        if files:
            await tx.execute(_share, session_id=before["id"], successor_id=successor_id, ids=files, now=now)
        turn = await tx.fetchrow(
            _turn,
            run_id=run_id,
            session_id=successor_id,
            agent_id=before["agent_id"],
            owner=before["owner"],
            origin=locked.turn["origin"],
            title=wanted.title,
            event_ids=[event.id for event in stored[1:]],
            now=now,
            start_at=now + self._sweep_ms,
        )
        assert turn is not None
        await tx.execute(
            _record,
            id=made,
            predecessor_id=before["id"],
            successor_id=successor_id,
            run_id=locked.turn["run_id"],
            event_id=messages[0]["id"],
            link=link,
            now=now,
        )
        self._tell(tx, session_of(locked.session), session_of(row), stored)
        return Continued(made, start_of(turn), outcome_of(locked.turn))

    def _tell(self, tx: Tx, before: pb.Session, after: pb.Session, stored: Sequence[pb.SessionEvent]) -> None:
        changes.session(tx, after)
        changes.session_hint(tx, "session-created", after)
        changes.appended(tx, after.account, after.agent_id, stored)
        changes.session(tx, before)
        changes.session_hint(tx, "session-event", before)
        changes.session_hint(tx, "session-continued", before)


async def unlink(tx: Tx, ids: Collection[str], now: int) -> None:
    """Sessions that are deleted are linked to no more. They and those linked to them are locked by the caller."""
    gone = await tx.fetch(_forget, ids=list(ids))
    before = {row["predecessor_id"] for row in gone} - set(ids)
    after = {row["successor_id"] for row in gone} - set(ids)
    changed: list[Any] = []
    if before:
        changed += await tx.fetch(_no_successor, ids=sorted(before), now=now)
    if after:
        changed += await tx.fetch(_no_predecessor, ids=sorted(after), now=now)
    for row in changed:
        changes.session(tx, session_of(row))
