"""Sessions that go on in another one: one transaction, once a run, and what stands afterwards."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from seed.sessions.v1 import turns_pb2

from libs import wire
from services.sessions.domain import continuation
from tests.sessions.files import read, upload
from tests.sessions.world import Client, World, message, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALL = json.dumps({"type": "tool_call", "id": "c1", "name": "continue_session", "input": {}}).encode()


class Talk:
    """A session whose turn is at the call that continues it."""

    def __init__(self, world: World, c: Client, session_id: str, turn: Any) -> None:
        self.world, self.c, self.id, self.run_id = world, c, session_id, turn.run_id

    async def go_on(self, **fields: Any) -> Any:
        given = {
            "run_id": self.run_id,
            "attempt": 1,
            "tool_call_id": "c1",
            "result_step": "1:1:result:0",
            "reason": "topic_change",
            "title": "The offsite",
            "description": "Where and when.",
            "handoff": "You planned a venue survey.",
            "plan": "carry",
            **fields,
        }
        return await self.world.runner("ContinueSession", **given)

    async def refused(self, text: str, status: int = 400, **fields: Any) -> None:
        with pytest.raises(Exception) as e:
            await self.go_on(**fields)
        assert (e.value.message, e.value.status) == (text, status)  # pyright: ignore[reportAttributeAccessIssue]


async def talk(world: World, c: Client | None = None, session_id: str = "", **say: Any) -> Talk:
    c = c or world.account()
    session_id = session_id or await c.session(await c.agent(), title="Survey")
    turn = (await c.say(session_id, "Let us plan the offsite", **say)).turn
    await world.begin(turn.run_id)
    await world.runner(
        "AppendTurnEvents",
        run_id=turn.run_id,
        attempt=1,
        events=[
            turns_pb2.NewEvent(step="1:1:text", payload=message("Gladly.")),
            turns_pb2.NewEvent(step="1:1:call:0", payload=CALL),
        ],
    )
    return Talk(world, c, session_id, turn)


async def test_a_successor_with_its_turn_and_both_links(world: World) -> None:
    t = await talk(world)
    ears = await world.ears(t.c.id)
    done = await t.go_on()
    kinds = ["session_changed", "session-created", "session_appended", "session_appended", "session_changed"]
    await ears.until("session_appended", *kinds, "session-event", "session-continued")

    turn, outcome = done.turn, done.outcome
    assert (outcome.status, outcome.continued_to_session_id) == ("succeeded", turn.session_id)
    before, after = await t.c.get(t.id), await t.c.get(turn.session_id)
    link = {"continuationId": done.continuation_id, "reason": "topic_change", "createdAt": after.created_at}
    assert json.loads(before.continued_to) == {**link, "sessionId": after.id, "title": "The offsite"}
    assert json.loads(after.continued_from) == {**link, "sessionId": t.id, "title": "Survey"}
    assert (before.status, after.status, after.title, after.description) == (
        "idle", "streaming", "The offsite", "Where and when.",
    )  # fmt: skip
    assert not after.HasField("parent_session_id") and not after.HasField("run_id")

    log = await t.c.events(t.id)
    output = {"continuationId": done.continuation_id, "successorSessionId": after.id, "title": "The offsite"}
    assert log[-1]["output"] == output and log[-1]["toolCallId"] == "c1" and len(log) == 4
    told, asked = await t.c.events(after.id)
    assert told == {"type": "message", "role": "user", "content": "You planned a venue survey.", "actor": "system"}
    original = log[0]
    origin = asked["meta"].pop("continuedFrom")
    assert asked == original and origin["sessionId"] == t.id and origin["seq"] == 1
    assert (turn.origin, turn.queued_behind, turn.owner, turn.title) == ("user", False, t.c.id, "The offsite")
    begun = await world.begin(turn.run_id)
    assert [e.id for e in begun.events][1:] == list(begun.own_event_ids)
    # The repeat of the message is told where the answer went.
    assert (await world.begin(t.run_id, 2)).outcome == outcome


async def test_a_repeat_makes_no_second_one_whoever_died(world: World) -> None:
    t = await talk(world)
    answers = await asyncio.gather(*(t.go_on() for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
    assert await t.go_on(attempt=2) == answers[0]
    assert len(await world.sql("SELECT 1 FROM continuations WHERE predecessor_id = $1", t.id)) == 1
    sessions = (await t.c("ListSessions")).sessions
    assert {s.id for s in sessions} == {t.id, answers[0].turn.session_id}


async def test_an_older_attempt_and_a_canceled_turn_continue_nothing(world: World) -> None:
    t = await talk(world)
    await world.begin(t.run_id, 2)
    await t.refused("A newer attempt has taken this turn over", 409)
    await world.runner("CancelTurns", run_ids=[t.run_id])
    await t.refused("The turn has been canceled", 409, attempt=2)
    assert len((await t.c("ListSessions")).sessions) == 1


async def test_the_turn_is_started_by_the_sweep_when_nobody_does(world: World) -> None:
    t = await talk(world)
    done = await t.go_on()
    await until(lambda: [start for start in world.runs.started if start.turn.run_id == done.turn.run_id])


async def test_twice_needs_somebody_to_say_something_new(world: World) -> None:
    t = await talk(world)
    successor = (await t.go_on()).turn
    await world.begin(successor.run_id)
    here = Talk(world, t.c, successor.session_id, successor)
    await here.refused(continuation.NOTHING_NEW)
    await world.finish(successor.run_id, "Here is a plan.")
    await (await talk(world, t.c, successor.session_id)).go_on()
    # Whoever comes back to the first session branches; the newest successor is the one it names.
    branch = (await (await talk(world, t.c, t.id)).go_on(title="Another way")).turn
    assert json.loads((await t.c.get(t.id)).continued_to)["sessionId"] == branch.session_id
    await t.c("DeleteSession", session_id=branch.session_id)
    assert json.loads((await t.c.get(t.id)).continued_to)["sessionId"] == successor.session_id
    await t.c("DeleteSession", session_id=t.id)
    assert not (await t.c.get(successor.session_id)).continued_from
    assert await world.sql("SELECT 1 FROM continuations WHERE predecessor_id = $1", t.id) == []


async def test_not_while_helpers_are_at_work(world: World) -> None:
    t = await talk(world)
    call = json.dumps({"type": "tool_call", "id": "d1", "name": "delegate", "input": {}}).encode()
    await world.runner(
        "AppendTurnEvents", run_id=t.run_id, attempt=1, events=[turns_pb2.NewEvent(step="d", payload=call)]
    )
    child = await world.runner(
        "SpawnChild",
        run_id=t.run_id,
        attempt=1,
        child_run_id="0" * 35 + t.run_id[0],
        title="Help",
        title_source="agent",
        message=message("Find out", "user"),
        parent_tool_call_id="d1",
        root_run_id=t.run_id,
        depth=1,
    )
    await t.refused(continuation.PENDING)
    answer = {"type": "tool_result", "toolCallId": "d1", "name": "delegate", "output": {"status": "succeeded"}}
    await world.runner(
        "AnswerCall",
        run_id=t.run_id,
        child_run_id=child.turn.run_id,
        tool_call_id="d1",
        payload=json.dumps(answer).encode(),
    )
    await t.go_on()


async def test_sources_must_be_there(world: World) -> None:
    t = await talk(world)
    other = await t.c.session(await t.c.agent())
    for cited in ((t.id, 1, 4), ("", 0, 1), ("", 3, 2), (other, 1, 1)):
        passage = turns_pb2.CitedEvents(session_id=cited[0], from_seq=cited[1], to_seq=cited[2])
        await t.refused(continuation.no_passage(cited[0] or t.id), cited=[passage])
    here, named = (
        turns_pb2.CitedEvents(from_seq=1, to_seq=3),
        turns_pb2.CitedEvents(session_id=t.id, from_seq=2, to_seq=2),
    )
    await t.go_on(cited=[here, named])


PLAN = {"steps": [{"id": "a", "label": "A", "status": "done"}, {"id": "b", "label": "B", "status": "running"}]}


@pytest.mark.parametrize("transfer", continuation.TRANSFERS)
async def test_the_plan_moves_ends_or_stays(world: World, transfer: str) -> None:
    t = await talk(world)
    plan = {**PLAN, "ownerRunId": t.run_id}
    await world.runner("SetPlan", run_id=t.run_id, attempt=1, plan=json.dumps(plan).encode())
    turn = (await t.go_on(plan=transfer)).turn
    before, after = (await t.c.get(t.id)).plan, (await t.c.get(turn.session_id)).plan
    if transfer == "carry":
        assert not before and json.loads(after) == {**plan, "ownerRunId": turn.run_id}
    else:
        status = {"close": "skipped", "omit": "done"}[transfer]
        kept = json.loads(before)
        assert not after and [s["status"] for s in kept["steps"]] == ["done", status] and kept["settledAt"]


async def test_attachments_are_shared_until_the_last_one_goes(world: World) -> None:
    c = world.account()
    session_id = await c.session(await c.agent())
    file = await upload(c, session_id, b"a map", name="map.txt")
    content = wire.encode([{"type": "text", "text": "See the map"}, {"type": "attachment", "id": file.id}])
    t = await talk(world, c, session_id, content=content)
    turn = (await t.go_on()).turn
    _, asked = await c.events(turn.session_id)
    assert [a["sessionId"] for a in asked["attachments"]] == [turn.session_id]

    [row] = await world.sql("SELECT DISTINCT blob FROM attachments WHERE id = $1 AND session_id = $2", file.id, t.id)
    await c("DeleteSession", session_id=t.id)
    assert await world.sql("SELECT 1 FROM loose_blobs WHERE key = $1", row["blob"]) == []
    assert (await read(c, turn.session_id, file.id))[1] == b"a map"
    await c("DeleteSession", session_id=turn.session_id)
    gone = "SELECT 1 FROM attachments WHERE blob = $1"
    assert await world.sql(gone, row["blob"]) == []


async def test_a_session_has_three_attempts_at_a_title(world: World) -> None:
    c = world.account()
    session_id = await c.session(await c.agent())
    turn = (await c.say(session_id, "hi")).turn
    assert (await world.begin(turn.run_id)).title_attempts == 0
    for _ in range(3):
        taken = await world.runner("TakeTitle", run_id=turn.run_id, most_attempts=3, events=12)
        assert taken.taken and [e.seq for e in taken.events] == [1]
    assert not (await world.runner("TakeTitle", run_id=turn.run_id, most_attempts=3, events=12)).taken
    assert (await world.begin(turn.run_id)).title_attempts == 3

    mine = await c.session(await c.agent())
    await c("UpdateSession", session_id=mine, title="Mine")
    named = (await c.say(mine, "hi")).turn
    assert not (await world.runner("TakeTitle", run_id=named.run_id, most_attempts=3, events=12)).taken
    await world.runner.fails(404, "Session not found", "TakeTitle", run_id="none", most_attempts=3, events=12)
