"""What people do in a session with verbs: the call, its result, and who waits for whom."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from libs import wire
from libs.errors import Conflict
from tests.sessions.world import NIL, World, said

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIVE = "The agent is working in this thread right now; wait for its turn to finish"
RUNNING = "A user tool action is still running in this thread; wait for it to finish"


async def begin(world: World, account: str, session: str, **fields: Any) -> Any:
    runs = world.client("runs-api", account)
    given = {"verb": "read", "input": b'{"address":"~/memory/"}', **fields}
    return await runs("BeginUserAction", session_id=session, **given)


async def finish(world: World, action: Any, **result: Any) -> Any:
    runs = world.client("runs-api")
    payload = {"type": "tool_result", "toolCallId": action.tool_call_id, "name": "read", "actor": "user", **result}
    return await runs(
        "FinishUserAction",
        tool_call_id=action.tool_call_id,
        session_id=action.session_id,
        payload=json.dumps(payload).encode(),
    )


async def test_call_and_result_stand_in_the_log_and_are_told(world: World) -> None:
    owner = world.account()
    agent = await owner.agent()
    session = await owner.session(agent)
    ears = await world.ears(owner.id)
    action = await begin(world, owner.id, f" {session} ")
    assert action.tool_call_id.startswith("user-") and action.lease_ms == 15_000
    assert (action.session_id, action.agent_id, action.owner) == (session, agent, owner.id)
    definition: Any = wire.decode(action.definition)
    assert definition["name"] == "Stub agent"
    await ears.until("session_appended", "session-event")
    done = await finish(world, action, output={"summary": "Nothing."})
    heard = await ears.until("session_appended", "session-event")
    assert heard[0].session_appended.event == done.event
    call, result = await owner.events(session)
    assert call == {
        "type": "tool_call",
        "id": action.tool_call_id,
        "name": "read",
        "input": {"address": "~/memory/"},
        "actor": "user",
    }
    assert (result["actor"], result["output"]) == ("user", {"summary": "Nothing."})
    assert (await owner.get(session)).status == "idle"


async def test_a_result_is_stored_once(world: World) -> None:
    owner = world.account()
    session = await owner.session(await owner.agent())
    action = await begin(world, owner.id, session)
    first = await finish(world, action, output=1)
    assert (await finish(world, action, output=2)).event == first.event
    assert len(await owner.events(session)) == 2


async def test_who_may_and_in_which_order_it_is_refused(world: World) -> None:
    owner = world.account()
    agent = await owner.agent()
    session = await owner.session(agent)
    reader = await world.member(owner, agent, "reader")
    writer = await world.member(owner, agent)
    turn = (await owner.say(session)).turn
    for account, status, text in (
        (world.account().id, 404, "Session not found"),
        (reader.id, 403, "Write access is required"),
        (writer.id, 409, LIVE),
    ):
        await world.client("runs-api", account).fails(
            status, text, "BeginUserAction", session_id=session, verb="read", input=b"{}"
        )
    await world.client("runs-api", owner.id).fails(
        404, "Session not found", "BeginUserAction", session_id=NIL, verb="read", input=b"{}"
    )
    large = b'"' + b"x" * (1 << 20) + b'"'
    await world.client("runs-api", writer.id).fails(
        400, "Tool input is too large", "BeginUserAction", session_id=session, verb="write", input=large
    )
    await owner.fails(403, "This call is internal", "BeginUserAction", session_id=session, verb="read", input=b"{}")
    await world.answer(turn)
    action = await begin(world, writer.id, session)
    await finish(world, action, output={})


async def test_no_turn_opens_beside_an_action_and_several_actions_may_run(world: World) -> None:
    owner = world.account()
    session = await owner.session(await owner.agent())
    before = await owner.say(session, "first", client_message_id="m1")
    await world.begin(before.turn.run_id)
    await world.finish(before.turn.run_id, status="failed", error_message="no", error_status=502)
    actions = await asyncio.gather(*(begin(world, owner.id, session) for _ in range(3)))
    for call in ("MessageSession", "RetrySession"):
        more = {"content": said("more"), "signature_hash": b"s" * 32} if call == "MessageSession" else {}
        await owner.fails(409, RUNNING, call, session_id=session, **more)
    # A message that is known already is no new one.
    await owner.fails(
        409, RUNNING, "MessageSession", session_id=session, content=said("first"), client_message_id="m1",
    )  # fmt: skip
    for action in actions[:2]:
        await finish(world, action, output={})
    with pytest.raises(Conflict):
        await owner.say(session)
    await finish(world, actions[2], error="It did not work.")
    turn = (await owner.say(session, "at last")).turn
    await world.answer(turn)
    names = [e["type"] for e in await owner.events(session)]
    assert names.count("tool_call") == names.count("tool_result") == 3


async def test_a_repeat_of_an_answered_message_is_answered_beside_an_action(world: World) -> None:
    owner = world.account()
    session = await owner.session(await owner.agent())
    sent = await owner.say(session, "first", client_message_id="m1")
    done = await world.answer(sent.turn)
    action = await begin(world, owner.id, session)
    again = await owner.say(session, "first", client_message_id="m1")
    assert again.outcome.assistant_event_id == done.assistant_event_id
    await finish(world, action, output={})


async def test_what_nobody_renews_is_given_up(world: World) -> None:
    owner = world.account()
    session = await owner.session(await owner.agent())
    lost, held = await begin(world, owner.id, session), await begin(world, owner.id, session, verb="write")
    await world.sql("UPDATE user_actions SET expires_at = 1 WHERE id = $1", lost.tool_call_id)
    await world.sql("UPDATE user_actions SET expires_at = expires_at - 10000 WHERE id = $1", held.tool_call_id)
    [before] = await world.sql("SELECT expires_at FROM user_actions WHERE id = $1", held.tool_call_id)
    await world.client("runs-api")("RenewUserActions", tool_call_ids=[held.tool_call_id, "user-none"])
    [after] = await world.sql("SELECT expires_at FROM user_actions WHERE id = $1", held.tool_call_id)
    assert after["expires_at"] >= before["expires_at"] + 9_000
    deadline = asyncio.get_running_loop().time() + 5
    while len(events := await owner.events(session)) < 3:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)
    assert (events[2]["toolCallId"], events[2]["actor"]) == (lost.tool_call_id, "user")
    assert "interrupted" in events[2]["error"]
    # Whoever executed it hears what stands, and the other still holds the session.
    late = await finish(world, lost, output="late")
    assert json.loads(late.event.payload) == events[2]
    with pytest.raises(Conflict):
        await owner.say(session)
    await finish(world, held, output={})
    await world.answer((await owner.say(session)).turn)


async def test_deleting_the_session_ends_its_actions(world: World) -> None:
    owner = world.account()
    session = await owner.session(await owner.agent())
    action = await begin(world, owner.id, session)
    await owner("DeleteSession", session_id=session)
    assert not await world.sql("SELECT 1 FROM user_actions WHERE session_id = $1", session)
    runs = world.client("runs-api")
    await runs.fails(
        404,
        "Session not found",
        "FinishUserAction",
        tool_call_id=action.tool_call_id,
        session_id=session,
        payload=b"{}",
    )


async def test_a_turn_does_not_repair_what_people_do(world: World) -> None:
    owner = world.account()
    session = await owner.session(await owner.agent())
    action = await begin(world, owner.id, session)
    await world.sql("DELETE FROM user_actions WHERE id = $1", action.tool_call_id)
    await world.sql("UPDATE sessions SET user_actions = 0 WHERE id = $1", session)
    turn = (await owner.say(session)).turn
    await world.answer(turn)
    assert [e["type"] for e in await owner.events(session)] == ["tool_call", "message", "message"]
