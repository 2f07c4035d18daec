"""The turn ledger under random orders of calls: fencing, cancel, repeats, and one truth about what is live."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from libs import wire
from libs.errors import Canceled, Conflict, Invalid, SeedError, StaleAttempt
from libs.store import Database, Outbox, sql
from services.sessions.store.agents import AgentStore
from services.sessions.store.children import ChildStore
from services.sessions.store.ledger import Step
from services.sessions.store.messages import Message, MessageStore
from services.sessions.store.newcomers import NewcomerStore
from services.sessions.store.rows import SESSION, Row, text
from services.sessions.store.sessions import SessionStore
from services.sessions.store.tables import outbox, session_turns, sessions
from services.sessions.store.turns import Ending, TurnStore
from tests.sessions.world import message

_session = sql(sa.select(*SESSION).where(sessions.c.id == text("id")))
_live = sql(sa.select(sa.func.count()).where(session_turns.c.session_id == text("id"), session_turns.c.state == "live"))


class Stores:
    """The stores of the service on a loop of their own, so that a synchronous machine can call them."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.told: list[bytes] = []
        clock = itertools.count(1_000_000)
        self.db = Database(url, size=2)
        box = Outbox(self.db, outbox, self._publish)

        def now() -> int:
            return next(clock)

        self.agents, self.sessions = (
            AgentStore(self.db, box, NewcomerStore(self.db, now=now, first_ms=1), now=now),
            SessionStore(self.db, box, now=now),
        )
        self.messages = MessageStore(self.db, box, now=now, sweep_ms=1 << 40)
        self.turns = TurnStore(self.db, box, ChildStore(self.db, box, now=now, sweep_ms=2_000), now=now)
        self.run(self.db.open())
        definition = {"name": "n", "systemPrompt": [], "modelProvider": "p", "model": "m"}
        self.agent, _ = self.run(self.agents.create(wire.Key.generate().id, definition, None, signs_as=None))

    def _publish(self, subject: str, body: bytes) -> bool:
        self.told.append(body)
        return True

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def close(self) -> None:
        self.run(self.db.close())
        self.loop.close()


@dataclass
class Turn:
    """What the ledger must know of a turn."""

    run_id: str
    key: str
    queued: bool
    attempt: int = 0
    status: str = ""
    canceled: bool = False
    spoken: str = ""
    steps: dict[str, str] = field(default_factory=dict)


class Ledger(RuleBasedStateMachine):
    """One session and its model."""

    stores: Callable[[], Stores]

    def __init__(self) -> None:
        super().__init__()
        self.s = type(self).stores()
        self.session = self.s.run(self.s.sessions.create(self.s.agent, None, None))
        self.turns: list[Turn] = []
        self.log: list[str] = []
        self.status = "idle"

    @property
    def live(self) -> list[Turn]:
        return [turn for turn in self.turns if not turn.status]

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.s.run(coroutine)
        except SeedError as e:
            return e

    def opened(self, run_id: str, key: str) -> None:
        assert run_id not in {turn.run_id for turn in self.turns}
        self.turns.append(Turn(run_id, key, bool(self.live)))
        self.status = "streaming"

    def pick(self, data: st.DataObject) -> Turn:
        return data.draw(st.sampled_from(self.turns), "turn")

    def send(self, key: str, said: str) -> Any:
        digest = hashlib.sha256(said.encode()).digest()
        sent = Message("account", f"{self.session} {key}", digest, said, [message(said, "user")])
        return self.call(self.s.messages.send(self.session, sent))

    @initialize()
    def first(self) -> None:
        self.say(key="first")

    @rule(key=st.sampled_from("abc"))
    def say(self, key: str) -> None:
        known = [turn for turn in self.turns if turn.key == key]
        answer = self.send(key, f"said {key}")
        if not known:
            self.log.append(f"said {key}")
            self.opened(answer.start.run_id, key)
            assert answer.start.queued_behind == self.turns[-1].queued and not answer.start.retry
            return
        turn = known[-1]
        if not turn.status:
            assert answer.start.run_id == turn.run_id
        elif turn.status != "failed":
            assert answer.outcome.status == turn.status
            assert bool(answer.outcome.assistant_event_id) == (bool(turn.spoken) and not turn.queued)
        elif turn.queued:
            assert answer.outcome.status == "waiting"
        else:
            assert answer.start.retry and answer.start.queued_behind == bool(self.live)
            self.opened(answer.start.run_id, key)

    @rule(key=st.sampled_from("abc"))
    def say_something_else(self, key: str) -> None:
        if any(turn.key == key for turn in self.turns):
            assert isinstance(self.send(key, "something else"), Conflict)

    @rule()
    def retry(self) -> None:
        answer = self.call(self.s.messages.retry(self.session))
        if self.live:
            assert isinstance(answer, Conflict)
        elif self.turns[-1].status != "failed":
            assert isinstance(answer, Invalid)
        else:
            self.opened(answer.run_id, "")

    @rule(data=st.data(), step=st.integers(-1, 2))
    def begin(self, data: st.DataObject, step: int) -> None:
        turn = self.pick(data)
        attempt = max(1, turn.attempt + step)
        begun = self.call(self.s.turns.begin(turn.run_id, attempt, ()))
        if attempt < turn.attempt:
            assert isinstance(begun, StaleAttempt)
            return
        turn.attempt = attempt
        assert begun.turn["canceled"] == (turn.canceled or turn.status == "canceled")
        assert (begun.turn["state"] == "done") == bool(turn.status)
        assert [json.loads(e.payload)["content"] for e in begun.events] == self.log

    @rule(data=st.data(), step=st.integers(-1, 1), names=st.lists(st.sampled_from("xyz"), min_size=1, max_size=3))
    def append(self, data: st.DataObject, step: int, names: list[str]) -> None:
        turn = self.pick(data)
        attempt = max(1, turn.attempt + step)
        said = f"{turn.run_id} {len(self.log)}"
        stored = self.call(self.s.turns.append(turn.run_id, attempt, [Step(n, message(said)) for n in names]))
        if attempt < turn.attempt:
            assert isinstance(stored, StaleAttempt)
        elif turn.canceled or turn.status:
            assert isinstance(stored, Canceled)
        else:
            turn.attempt = attempt
            self.write(turn, names, said)
            assert [json.loads(e.payload)["content"] for e in stored] == [turn.steps[n] for n in names]

    @rule(
        data=st.data(),
        step=st.integers(-1, 1),
        status=st.sampled_from(["succeeded", "failed", "canceled"]),
        names=st.lists(st.sampled_from("xyz"), max_size=2),
    )
    def finish(self, data: st.DataObject, step: int, status: str, names: list[str]) -> None:
        turn = self.pick(data)
        attempt = max(1, turn.attempt + step)
        said = f"{turn.run_id} {len(self.log)}"
        steps = [Step(n, message(said)) for n in names]
        outcome = self.call(self.s.turns.finish(turn.run_id, attempt, steps, Ending(status, stopped_text="Stopped.")))
        if turn.status:
            assert outcome.status == turn.status, "the first end stands"
        elif attempt < turn.attempt:
            assert isinstance(outcome, StaleAttempt)
        elif turn.canceled and status != "canceled":
            assert isinstance(outcome, Canceled)
        else:
            turn.attempt = attempt
            self.write(turn, names, said)
            if status == "canceled" and not turn.spoken:
                self.write(turn, ["stopped"], "Stopped.")
            self.ended(turn, status)
            assert outcome.status == status and bool(outcome.assistant_event_id) == bool(turn.spoken)

    @rule(data=st.data())
    def finish_a_queued_run(self, data: st.DataObject) -> None:
        turn = self.pick(data)
        ending = Ending("canceled", stopped_text="Stopped.")
        outcome = self.call(self.s.turns.finish(turn.run_id, 0, [Step("x", message("no"))], ending))
        if not turn.status:
            self.ended(turn, "canceled")
        assert outcome.status == turn.status

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        turn = self.pick(data)
        self.s.run(self.s.turns.cancel([turn.run_id]))
        turn.canceled = turn.canceled or not turn.status

    @rule(data=st.data(), step=st.integers(-1, 0), plan=st.sampled_from([b"", b"{}", b"[]"]))
    def plan(self, data: st.DataObject, step: int, plan: bytes) -> None:
        turn = self.pick(data)
        attempt = max(1, turn.attempt + step)
        session = self.call(self.s.turns.set_plan(turn.run_id, attempt, plan))
        if attempt < turn.attempt:
            assert isinstance(session, StaleAttempt)
        elif turn.canceled or turn.status:
            assert isinstance(session, Canceled)
        else:
            assert session.plan == plan

    def write(self, turn: Turn, names: list[str], said: str) -> None:
        for name in names:
            if name not in turn.steps:
                turn.steps[name] = said
                self.log.append(said)
            turn.spoken = said

    def ended(self, turn: Turn, status: str) -> None:
        turn.status, turn.canceled = status, turn.canceled or status == "canceled"
        self.status = "streaming" if self.live else "error" if status == "failed" else "idle"

    @invariant()
    def the_rows_say_the_same(self) -> None:
        row: Row = self.s.run(self.s.db.fetchrow(_session, id=self.session))
        assert row["status"] == self.status
        assert row["live_turns"] == len(self.live) == self.s.run(self.s.db.fetchval(_live, id=self.session))
        events = self.s.run(self.s.sessions.events(self.session, 0))
        assert [e.seq for e in events] == list(range(1, row["last_seq"] + 1))
        assert [json.loads(e.payload)["content"] for e in events] == self.log


@pytest.fixture
def stores(sessions_stores: dict[str, str]) -> Iterator[Stores]:
    made = Stores(sessions_stores["database"])
    yield made
    made.close()


def test_ledger(stores: Stores) -> None:
    machine = type("OneLedger", (Ledger,), {"stores": staticmethod(lambda: stores)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            database=None,
            # Each step is a round trip to the database: shrinking would take minutes.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
