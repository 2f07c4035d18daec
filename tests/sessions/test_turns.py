"""TurnsService over gRPC: fencing, steps, cancel, endings, repairs, plan and names."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from seed.sessions.v1 import turns_pb2

from tests.sessions.world import NIL, Client, World, message

pytestmark = pytest.mark.asyncio(loop_scope="session")

STALE, CANCELED = "A newer attempt has taken this turn over", "The turn has been canceled"


def new(step: str, payload: bytes) -> turns_pb2.NewEvent:
    return turns_pb2.NewEvent(step=step, payload=payload)


def call(i: str, **more: Any) -> bytes:
    return json.dumps({"type": "tool_call", "id": i, "name": "read", "input": {}, **more}).encode()


class Turn:
    """A live turn of a fresh conversation."""

    def __init__(self, world: World, c: Client, session_id: str, turn: Any) -> None:
        self.world, self.c, self.session_id, self.turn, self.id = world, c, session_id, turn, turn.run_id

    async def append(self, *events: turns_pb2.NewEvent, attempt: int = 1) -> Any:
        return await self.world.runner("AppendTurnEvents", run_id=self.id, attempt=attempt, events=events)

    async def refused(self, text: str, method: str, code: int = 409, /, **fields: Any) -> None:
        await self.world.runner.fails(code, text, method, run_id=self.id, **fields)

    async def log(self) -> list[str]:
        return [e.get("content") or e["type"] for e in await self.c.events(self.session_id)]


async def live(world: World, **session: Any) -> Turn:
    c = world.account()
    session_id = await c.session(await c.agent(), **session)
    return Turn(world, c, session_id, (await c.say(session_id, "hi")).turn)


async def test_steps_are_stored_once(world: World) -> None:
    t = await live(world)
    await world.begin(t.id)
    ears = await world.ears(t.c.id)
    first = (await t.append(new("a", message("A")), new("b", call("1")))).events
    await ears.until("session_appended", "session_appended", "session-event")
    assert [e.seq for e in first] == [2, 3]
    again = (await t.append(new("b", call("other")), new("c", message("C")), new("a", message("x")))).events
    assert [e.id for e in again] == [first[1].id, again[1].id, first[0].id] and again[1].seq == 4
    assert list((await t.append(new("a", message("A")))).events) == [first[0]]
    (appended, _) = await ears.until("session_appended", "session-event")
    assert appended.session_appended.event == again[1]
    assert await t.log() == ["hi", "A", "tool_call", "C"]


async def test_equal_appends_at_once(world: World) -> None:
    t = await live(world)
    await world.begin(t.id)
    answers = await asyncio.gather(*(t.append(new("a", message("A")), new("b", message("B"))) for _ in range(6)))
    assert len({tuple(e.id for e in a.events) for a in answers}) == 1 and await t.log() == ["hi", "A", "B"]
    assert len((await t.append(new("c", message("C")), new("c", message("D")))).events) == 2
    assert await t.log() == ["hi", "A", "B", "C"]


async def test_a_newer_attempt_fences_the_older(world: World) -> None:
    t = await live(world)
    await world.begin(t.id, 1)
    await t.append(new("a", message("A")))
    begun = await world.begin(t.id, 2)
    assert len(begun.events) == 2 and not begun.HasField("outcome") and not begun.canceled
    await t.refused(STALE, "BeginTurn", attempt=1)
    await t.refused(STALE, "AppendTurnEvents", attempt=1, events=[new("a", message("A"))])
    await t.refused(STALE, "FinishTurn", attempt=1, status="succeeded")
    await t.refused(STALE, "FinishTurn", attempt=1, status="canceled")
    await t.refused(STALE, "SetPlan", attempt=1, plan=b"{}")
    await t.refused(STALE, "DescribeSession", attempt=1, title="t")
    assert (await t.append(new("a", message("B")), attempt=2)).events[0].seq == 2
    await t.append(new("b", message("B")), attempt=3)
    await t.refused(STALE, "AppendTurnEvents", attempt=2, events=[new("c", message("C"))])
    outcome = await world.finish(t.id, attempt=3, events=[])
    assert outcome.status == "succeeded" and outcome.assistant_event_id
    assert await t.log() == ["hi", "A", "B"]


async def test_the_end_is_recorded_once(world: World) -> None:
    t = await live(world)
    await world.begin(t.id)
    ends = [world.finish(t.id, "done"), world.finish(t.id, status="failed", error_message="late", error_status=502)]
    first, second = await asyncio.gather(*ends)
    assert first == second
    assert await world.finish(t.id, "again", attempt=9) == first
    rows = await world.sql("SELECT live_turns, status FROM sessions WHERE id = $1", t.session_id)
    assert rows[0]["live_turns"] == 0 and rows[0]["status"] in ("idle", "error")
    begun = await world.begin(t.id, 2)
    assert begun.outcome == first
    await t.refused("The turn has ended", "AppendTurnEvents", attempt=2, events=[new("z", message("Z"))])
    await t.refused("A turn does not end as queued", "FinishTurn", 400, attempt=2, status="queued")


async def test_a_failure(world: World) -> None:
    t = await live(world)
    await world.begin(t.id)
    ears = await world.ears(t.c.id)
    error = json.dumps({"type": "error", "message": "boom"}).encode()
    fields = {"events": [new("error", error)], "error_message": "boom\0", "error_status": 502}
    outcome = await world.finish(t.id, status="failed", **fields)
    assert (outcome.error_message, outcome.error_status, outcome.assistant_event_id) == ("boom\ufffd", 502, "")
    _, changed, _ = await ears.until("session_appended", "session_changed", "session-event")
    assert changed.session_changed.session.status == "error" and await t.log() == ["hi", "error"]


async def test_after_a_cancel_only_the_end_is_written(world: World) -> None:
    t = await live(world)
    await world.begin(t.id)
    await world.runner("CancelTurns", run_ids=[t.id, NIL, "a\0b"])
    await t.refused(CANCELED, "AppendTurnEvents", attempt=1, events=[new("a", message("A"))])
    await t.refused(CANCELED, "FinishTurn", attempt=1, status="succeeded")
    await t.refused(CANCELED, "SetPlan", attempt=1, plan=b"{}")
    await t.refused(CANCELED, "DescribeSession", attempt=1, title="t")
    assert (await world.begin(t.id, 2)).canceled
    outcome = await world.finish(t.id, attempt=2, status="canceled", stopped_text="Stopped.")
    assert outcome.status == "canceled" and await t.log() == ["hi", "Stopped."]
    (stopped,) = [e for e in (await t.c("GetSession", session_id=t.session_id)).events if e.seq == 2]
    assert outcome.assistant_event_id == stopped.id
    assert json.loads(stopped.payload) == {"type": "message", "role": "assistant", "content": "Stopped."}
    assert (await t.c.get(t.session_id)).status == "idle"


@pytest.mark.parametrize("when", ["before", "with"])
async def test_text_so_far_stands_for_the_stopped_message(world: World, when: str) -> None:
    t = await live(world)
    await world.begin(t.id)
    partial = new("text", message("half"))
    if when == "before":
        await t.append(partial)
    await world.runner("CancelTurns", run_ids=[t.id])
    events = [partial] if when == "with" else []
    outcome = await world.finish(t.id, status="canceled", events=events, stopped_text="Stopped.")
    assert outcome.assistant_event_id and await t.log() == ["hi", "half"]


async def test_a_queued_run_is_canceled_silently(world: World) -> None:
    t = await live(world)
    outcome = await world.finish(t.id, attempt=0, status="canceled", events=[], stopped_text="Stopped.")
    assert (outcome.status, outcome.assistant_event_id) == ("canceled", "") and await t.log() == ["hi"]
    assert (await t.c.get(t.session_id)).status == "idle"
    nothing = "Nothing to retry: the latest run did not fail"
    await t.c.fails(400, nothing, "RetrySession", session_id=t.session_id)


async def test_open_calls_are_repaired(world: World) -> None:
    t = await live(world)
    await world.begin(t.id)
    calls = [new("1", call("lost")), new("2", call("waiting")), new("3", call("mine", actor="user"))]
    await t.append(*calls)
    ears = await world.ears(t.c.id)
    begun = await world.begin(t.id, 2, waiting_tool_call_ids=["waiting"])
    repaired = json.loads(begun.events[-1].payload)
    assert (repaired["type"], repaired["toolCallId"], repaired["name"]) == ("tool_result", "lost", "read")
    assert [e.seq for e in begun.events] == [1, 2, 3, 4, 5]
    (appended, _) = await ears.until("session_appended", "session-event")
    assert appended.session_appended.event == begun.events[-1]
    assert len((await world.begin(t.id, 3, waiting_tool_call_ids=["waiting"])).events) == 5
    await world.runner("CancelTurns", run_ids=[t.id])
    assert len((await world.begin(t.id, 4)).events) == 5, "nothing is written after a cancel"


async def test_plan(world: World) -> None:
    t = await live(world)
    await world.begin(t.id)
    ears = await world.ears(t.c.id)
    session = (await world.runner("SetPlan", run_id=t.id, attempt=1, plan=b'{"steps":[]}')).session
    assert session.plan == b'{"steps":[]}'
    changed, _ = await ears.until("session_changed", "session-updated")
    assert changed.session_changed.session == session
    assert (await world.runner("SetPlan", run_id=t.id, attempt=1, plan=b'{"steps":[]}')).session == session
    assert (await world.runner("SetPlan", run_id=t.id, attempt=1, plan=b"")).session.plan == b""
    await ears.until("session_changed", "session-updated")


async def test_names_by_the_agent(world: World) -> None:
    t = await live(world, title="provisional")
    assert (await world.begin(t.id)).title_source == "system"
    ears = await world.ears(t.c.id)
    named = {"run_id": t.id, "attempt": 1, "title": " Named ", "description": "About."}
    session = (await world.runner("DescribeSession", **named)).session
    assert (session.title, session.description) == ("Named", "About.")
    await ears.until("session_changed", "session-updated")
    assert (await world.runner("DescribeSession", **named)).session == session
    text = "Session title is too large"
    await t.refused(text, "DescribeSession", 400, attempt=1, title="x" * 257)
    await t.c("UpdateSession", session_id=t.session_id, title="Mine")
    session = (await world.runner("DescribeSession", **{**named, "description": "Newer."})).session
    assert (session.title, session.description) == ("Mine", "Newer.")
    assert (await world.begin(t.id)).title_source == "user"


async def test_the_automatic_title_comes_late(world: World) -> None:
    t = await live(world)
    await world.begin(t.id, 3)
    await world.finish(t.id, "ok", attempt=3)
    automatic = {"run_id": t.id, "attempt": 1, "automatic": True, "title": "T", "description": "D"}
    session = (await world.runner("DescribeSession", **automatic)).session
    assert (session.title, session.description) == ("T", "D")
    assert (await world.runner("DescribeSession", **{**automatic, "title": "U"})).session == session


async def test_what_runs_asks_about_must_exist(world: World) -> None:
    for missing in (NIL, "a\0b"):
        await world.runner.fails(404, "Session not found", "BeginTurn", run_id=missing, attempt=1)
        await world.runner.fails(404, "Session not found", "FinishTurn", run_id=missing, attempt=1, status="failed")


async def test_a_step_that_others_have_done_is_resolved_after_the_end_too(world: World) -> None:
    t = await live(world)
    await world.begin(t.id)
    steps = [{"id": "a", "label": "Look", "status": "running"}, {"id": "b", "label": "Tell", "status": "skipped"}]
    await world.runner("SetPlan", run_id=t.id, attempt=1, plan=json.dumps({"steps": steps}).encode())
    await world.finish(t.id, "On it.")
    ears = await world.ears(t.c.id)
    for step_id, label in (("a", "Another"), ("b", "Tell"), ("c", "Look")):
        await world.runner("ResolveStep", run_id=t.id, step_id=step_id, step_label=label)
    assert json.loads((await t.c.get(t.session_id)).plan) == {"steps": steps}
    for _ in range(2):
        await world.runner("ResolveStep", run_id=t.id, step_id="a", step_label="Look")
    plan = json.loads((await t.c.get(t.session_id)).plan)
    assert plan["steps"][0] == {**steps[0], "status": "done", "resolvedBy": "runtime"} and plan["settledAt"]
    await ears.until("session_changed", "session-updated")
    await t.c("DeleteSession", session_id=t.session_id)
    await t.refused("Session not found", "ResolveStep", 404, step_id="a", step_label="Look")
