"""Sessions that triggers start: once by the firing, with a snapshot of the trigger, until that is forgotten."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from tests.sessions.world import NIL, Client, World, message, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


def firing(c: Client, agent_id: str, **more: Any) -> dict[str, Any]:
    """The fields of StartTriggered."""
    summary = {"triggerId": "t1", "firingId": "f1", "triggerName": "T"}
    return {
        "firing_id": str(uuid.uuid4()),
        "trigger_id": str(uuid.uuid4()),
        "owner": c.id,
        "agent_id": agent_id,
        "title": "T — It happened",
        "message": message("Look.", "user", actor="trigger"),
        "summary": json.dumps(summary).encode(),
        "context": json.dumps({**summary, "prompt": "Look.", "activity": {"n": 1}, "status": "created"}).encode(),
        **more,
    }


async def context(c: Client, session_id: str) -> Any:
    found = (await c("GetSession", session_id=session_id)).trigger_context
    return json.loads(found) if found else None


async def test_a_session_with_its_turn_once(world: World) -> None:
    c, triggers = world.account(), world.client("triggers-monitor")
    agent_id = await c.agent()
    fields = firing(c, agent_id)
    ears = await world.ears(c.id)
    answers = await asyncio.gather(*(triggers("StartTriggered", **fields) for _ in range(6)))
    assert len({answer.session_id for answer in answers}) == 1
    session_id, run_id = answers[0].session_id, f"firing-{fields['firing_id']}"
    heard = await ears.until("session_changed", "session-created", "session_appended")
    assert heard[0].session_changed.session.started_by_trigger == fields["summary"]
    session = await c.get(session_id)
    assert (session.title, session.status, session.run_id, session.account) == (
        fields["title"],
        "streaming",
        run_id,
        c.id,
    )
    assert session.started_by_trigger == fields["summary"]
    assert [event["content"] for event in await c.events(session_id)] == ["Look."]
    turn = next(request.turn for request in world.runs.started if request.turn.run_id == run_id)
    assert (turn.origin, turn.session_id, turn.agent_id, turn.owner) == ("trigger", session_id, agent_id, c.id)
    assert turn.title == fields["title"] and not turn.parent_run_id and not turn.queued_behind
    begun = await world.begin(run_id)
    assert begun.title_source == "system" and list(begun.own_event_ids) == list(turn.event_ids)
    await world.finish(run_id, "Done.")
    assert (await c.get(session_id)).status == "idle"
    assert (await context(c, session_id))["status"] == "created"
    # Repeated after the end it still answers the same, and starts nothing.
    assert (await triggers("StartTriggered", **fields)).session_id == session_id
    assert len(await c.events(session_id)) == 2
    # A person may go on in it.
    await world.answer((await c.say(session_id)).turn)


async def test_a_failed_turn_is_a_failed_firing(world: World) -> None:
    c, triggers = world.account(), world.client("triggers-api")
    fields = firing(c, await c.agent())
    session_id = (await triggers("StartTriggered", **fields)).session_id
    run_id = f"firing-{fields['firing_id']}"
    await world.begin(run_id)
    await world.finish(run_id, status="failed", error_message="Away", error_status=502)
    told = await context(c, session_id)
    assert (told["status"], told["error"], told["activity"]) == ("error", "Away", {"n": 1})


async def test_a_turn_that_runs_did_not_hear_of_is_started_by_the_sweep(world: World) -> None:
    c, triggers = world.account(), world.client("triggers-monitor")
    agent_id = await c.agent()
    world.runs.away = True
    try:
        fields = firing(c, agent_id)
        await triggers("StartTriggered", **fields)
    finally:
        world.runs.away = False
    await until(lambda: world.runs.starts(f"firing-{fields['firing_id']}") > 0)


async def test_a_deleted_trigger_is_forgotten(world: World) -> None:
    c, triggers = world.account(), world.client("triggers-api")
    agent_id = await c.agent()
    kept, gone = firing(c, agent_id), firing(c, agent_id)
    again = {**gone, "firing_id": str(uuid.uuid4())}
    ids = [(await triggers("StartTriggered", **fields)).session_id for fields in (kept, gone, again)]
    assert all([await context(c, session_id) for session_id in ids])
    ears = await world.ears(c.id)
    await triggers("ForgetTrigger", trigger_id=gone["trigger_id"])
    heard = await ears.until("session_changed", "session_changed")
    assert {event.session_changed.session.id for event in heard} == set(ids[1:])
    assert [bool(await context(c, session_id)) for session_id in ids] == [True, False, False]
    assert [bool((await c.get(session_id)).started_by_trigger) for session_id in ids] == [True, False, False]
    await triggers("ForgetTrigger", trigger_id=gone["trigger_id"])
    await triggers("ForgetTrigger", trigger_id=NIL)
    assert ears.events == []


async def test_sessions_by_their_ids(world: World) -> None:
    c, triggers = world.account(), world.client("triggers-api")
    agent_id, other = await c.agent(), await c.agent()
    ids = [(await triggers("StartTriggered", **firing(c, agent_id))).session_id for _ in range(3)]
    foreign = await c.session(other)
    await c("DeleteSession", session_id=ids[1])
    asked = [ids[2], NIL, foreign, *ids[:2]]
    found = await triggers("ListTriggered", agent_id=agent_id, session_ids=asked)
    assert [session.id for session in found.sessions] == [ids[2], ids[0]]
    await triggers.fails(400, "Too many sessions", "ListTriggered", agent_id=agent_id, session_ids=[NIL] * 1001)


async def test_deleting_takes_all_of_it(world: World) -> None:
    c, triggers = world.account(), world.client("triggers-monitor")
    agent_id = await c.agent()
    session_id = (await triggers("StartTriggered", **firing(c, agent_id))).session_id
    await c("DeleteAgent", agent_id=agent_id)
    assert not await world.sql("SELECT 1 FROM session_triggers WHERE session_id = $1", session_id)
    await triggers.fails(404, "Agent not found", "StartTriggered", **firing(c, agent_id))
    mine = await c.agent()
    await triggers.fails(404, "Agent not found", "StartTriggered", **firing(c, mine, owner=world.account().id))


async def test_only_triggers_may(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    for service in ("edge", "runs-worker", "runs-api", "memory", "ops"):
        client = world.client(service, c.id)
        for method, fields in (
            ("StartTriggered", firing(c, agent_id)),
            ("ListTriggered", {"agent_id": agent_id}),
            ("ForgetTrigger", {"trigger_id": NIL}),
        ):
            await client.fails(403, "This call is internal", method, **fields)
