"""A conversation from its first message to its answer, as runs and the edge drive it."""

from __future__ import annotations

import json

import pytest
from seed.sessions.v1 import turns_pb2

from tests.sessions.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_turn(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    ears = await world.ears(c.id)
    session_id = await c.session(agent_id, title="  Named  ")
    await ears.until("session_changed", "session-created")

    turn = (await c.say(session_id, "What is  this?\nTell me.")).turn
    assert (turn.session_id, turn.agent_id, turn.owner) == (session_id, agent_id, c.id)
    assert (turn.title, turn.origin, turn.retry, turn.queued_behind) == ("What is this?", "user", False, False)
    appended, changed, _ = await ears.until("session_appended", "session_changed", "session-event")
    assert changed.session_changed.session.status == "streaming"
    assert [appended.session_appended.event.id] == list(turn.event_ids)

    begun = await world.begin(turn.run_id)
    assert begun.session.status == "streaming" and begun.title_source == "system"
    assert (begun.model_provider, begun.model, begun.fallback_provider) == ("stub", "stub-1", "")
    assert begun.system_prompt.startswith("Be brief.\n\n") and list(begun.own_event_ids) == list(turn.event_ids)
    (event,) = begun.events
    assert json.loads(event.payload) == {
        "type": "message",
        "role": "user",
        "content": "What is  this?\nTell me.",
        "rawMarkdown": "What is  this?\nTell me.",
        "meta": {"accountId": c.id, "signerId": c.id},
    }

    outcome = await world.finish(turn.run_id, "An answer.")
    answer, changed, _ = await ears.until("session_appended", "session_changed", "session-event")
    assert outcome.status == "succeeded" and outcome.assistant_event_id == answer.session_appended.event.id
    got = await c("GetSession", session_id=session_id)
    assert got.session == changed.session_changed.session and got.session.status == "idle"
    assert [e.seq for e in got.events] == [1, 2] and got.last_seq == 2
    assert got.system_prompt.partition("time is")[0] == begun.system_prompt.partition("time is")[0]


async def test_what_a_turn_appended_is_out_before_the_turn_goes_on(world: World) -> None:
    """A run streams over a connection of its own: its next piece must not overtake what it appended before."""
    c = world.account()
    agent_id = await c.agent()
    turn = (await c.say(await c.session(agent_id))).turn
    await world.begin(turn.run_id)
    ears = await world.ears(c.id)
    for n in range(20):
        ears.events.clear()
        step = turns_pb2.NewEvent(step=f"result:{n}", payload=b'{"type":"tool_result","toolCallId":"c","name":"read"}')
        await world.runner("AppendTurnEvents", run_id=turn.run_id, attempt=1, events=[step])
        assert await world.arrived()
        assert ears.kinds() == ["session_appended", "session-event"]
