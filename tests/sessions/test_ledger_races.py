"""Ends of turns that meet messages, repeats of themselves and cancels in the same moment."""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from seed.events.v1 import events_pb2

from libs import wire
from libs.errors import Canceled, NotFound, SeedError, StaleAttempt
from libs.store import Database, Draft, Outbox, sql
from services.sessions.store import ledger
from services.sessions.store.access import AccessStore
from services.sessions.store.agents import AgentStore
from services.sessions.store.children import ChildStore
from services.sessions.store.ledger import Step
from services.sessions.store.messages import Answer, Message, MessageStore
from services.sessions.store.newcomers import NewcomerStore
from services.sessions.store.rows import Row, text
from services.sessions.store.sessions import SessionStore
from services.sessions.store.tables import outbox, session_turns, sessions
from services.sessions.store.turns import Ending, TurnStore
from tests.sessions.world import message

_state = sql(
    sa.select(
        sessions.c.last_seq,
        sessions.c.live_turns,
        sa.select(sa.func.count())
        .where(session_turns.c.session_id == text("id"), session_turns.c.state == "live")
        .scalar_subquery()
        .label("live"),
    ).where(sessions.c.id == text("id"))
)

_forget = sql(sa.delete(sessions).where(sessions.c.id == text("id")))


@dataclass
class Place:
    """The stores on one database, and every event that was published."""

    db: Database
    box: Outbox
    sessions: SessionStore
    messages: MessageStore
    turns: TurnStore
    access: AccessStore
    owner: str
    agent: str
    told: list[events_pb2.Event]

    async def row(self, session: str) -> Row:
        """The session as a request reads it before it writes."""
        return (await self.access.open_session(self.owner, session, "chatter"))[1]

    async def send(self, session: str, said: str, key: str = "") -> str:
        sent = Message("account", key or str(uuid.uuid4()), b"", said, [message(said, "user")])
        answer = await self.messages.send(session, sent, await self.row(session))
        assert answer.start is not None
        return answer.start.run_id

    async def live_turn(self) -> tuple[str, str]:
        """A session with a turn that a worker has begun."""
        session = await self.sessions.create(self.agent, None, None)
        run = await self.send(session, "question")
        await self.turns.begin(run, 1, ())
        return session, run

    def finish(self, run: str, status: str = "succeeded") -> Any:
        return self.turns.finish(run, 1, [Step("text", message("answer"))], Ending(status))

    async def check(self, session: str) -> list[str]:
        """Log, row and ledger agree, and each event was told once; returns what was said."""
        row = await self.db.fetchrow(_state, id=session)
        assert row is not None and row["live_turns"] == row["live"]
        events = await self.sessions.events(session, 0)
        assert [event.seq for event in events] == list(range(1, row["last_seq"] + 1))
        told = [e.session_appended.event for e in self.told if e.HasField("session_appended")]
        mine = sorted(event.seq for event in told if event.session_id == session)
        assert mine == list(range(1, row["last_seq"] + 1))
        return [json.loads(event.payload)["content"] for event in events]


@pytest_asyncio.fixture(loop_scope="session")
async def place(sessions_stores: dict[str, str]) -> AsyncIterator[Place]:
    clock = itertools.count(1_000_000)
    told: list[events_pb2.Event] = []
    db = Database(sessions_stores["database"], size=8)

    def publish(_: str, body: bytes) -> bool:
        told.append(events_pb2.Event.FromString(body))
        return True

    def now() -> int:
        return next(clock)

    box = Outbox(db, outbox, publish)
    await db.open()
    definition = {"name": "n", "systemPrompt": [], "modelProvider": "p", "model": "m"}
    agents, owner = AgentStore(db, box, NewcomerStore(db, now=now, first_ms=1), now=now), wire.Key.generate().id
    agent, _ = await agents.create(owner, definition, None, signs_as=None)
    turns = TurnStore(db, box, ChildStore(db, box, now=now, sweep_ms=2_000), now=now)
    messages = MessageStore(db, box, now=now, sweep_ms=1 << 40)
    yield Place(db, box, SessionStore(db, box, now=now), messages, turns, AccessStore(db), owner, agent, told)
    await db.close()


@pytest.mark.asyncio(loop_scope="session")
async def test_an_end_among_messages(place: Place) -> None:
    for _ in range(15):
        session, run = await place.live_turn()
        outcomes = await asyncio.gather(
            place.send(session, "one"), place.finish(run), place.send(session, "two"), place.finish(run)
        )
        assert outcomes[1] == outcomes[3] and outcomes[1].status == "succeeded"
        said = await place.check(session)
        assert sorted(said) == ["answer", "one", "question", "two"] and said[0] == "question"


@pytest.mark.asyncio(loop_scope="session")
async def test_an_end_and_a_cancel(place: Place) -> None:
    for _ in range(15):
        session, run = await place.live_turn()
        first, _, second = await asyncio.gather(
            place.finish(run), place.turns.cancel([run]), place.finish(run, "failed"), return_exceptions=True
        )
        ended = [outcome for outcome in (first, second) if not isinstance(outcome, SeedError)]
        refused = [outcome for outcome in (first, second) if isinstance(outcome, SeedError)]
        assert all(isinstance(error, Canceled | StaleAttempt) for error in refused)
        assert len({outcome.status for outcome in ended}) <= 1
        assert (await place.check(session)).count("answer") == bool(ended)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("between", ["message", "cancel", "claim", "end"])
async def test_nothing_is_written_on_what_was_seen_before_a_change(place: Place, between: str) -> None:
    session, run = await place.live_turn()
    seen = await ledger.peek(place.db, run)
    assert seen is not None
    if between == "message":
        await place.send(session, "more")
    elif between == "cancel":
        await place.turns.cancel([run])
    elif between == "claim":
        await place.turns.begin(run, 2, ())
    else:
        await place.finish(run)
    before = await place.check(session)
    draft, locked = Draft(), ledger.Locked(seen.session, seen.turn)
    writing = ledger.prepare(draft, locked, [Step("late", message("late"))], 5, session={}, turn={"state": "done"})
    assert not await ledger.write_at_once(place.box, ledger.at_once(place.box), seen, draft, writing)
    assert await place.check(session) == before


@pytest.mark.asyncio(loop_scope="session")
async def test_a_step_that_is_stored_already_undoes_the_whole_statement(place: Place) -> None:
    session, run = await place.live_turn()
    await place.turns.append(run, 1, [Step("text", message("answer"))])
    outcome = await place.turns.finish(
        run, 1, [Step("text", message("again")), Step("end", message("end"))], Ending("succeeded")
    )
    assert outcome.status == "succeeded"
    assert await place.check(session) == ["question", "answer", "end"]


@pytest.mark.asyncio(loop_scope="session")
async def test_messages_in_one_moment(place: Place) -> None:
    for _ in range(10):
        session, run = await place.live_turn()
        seen = await place.row(session)
        sent = [Message("account", str(uuid.uuid4()), b"", str(n), [message(str(n), "user")]) for n in range(4)]
        answers = await asyncio.gather(*(place.messages.send(session, one, seen) for one in sent), place.finish(run))
        runs = {answer.start.run_id for answer in answers[:4] if isinstance(answer, Answer) and answer.start}
        assert len(runs) == 4
        assert sorted(await place.check(session)) == ["0", "1", "2", "3", "answer", "question"]


@pytest.mark.asyncio(loop_scope="session")
async def test_one_message_sent_twice_in_one_moment(place: Place) -> None:
    for n in range(10):
        session = await place.sessions.create(place.agent, None, None)
        first, second = await asyncio.gather(
            place.send(session, "once", f"{session} {n}"), place.send(session, "once", f"{session} {n}")
        )
        assert first == second and await place.check(session) == ["once"]


@pytest.mark.asyncio(loop_scope="session")
async def test_a_message_on_a_session_that_is_gone(place: Place) -> None:
    session = await place.sessions.create(place.agent, None, None)
    seen = await place.row(session)
    async with place.box.transaction() as tx:
        await tx.execute(_forget, id=session)
    with pytest.raises(NotFound):
        await place.messages.send(session, Message("account", "late", b"", "t", [message("t", "user")]), seen)
