"""An answer to a delegated call that arrives while another turn of the session begins."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest
from seed.sessions.v1 import turns_pb2

from services.sessions.store import turns
from tests.sessions.test_messages import conversation
from tests.sessions.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_call_answered_while_another_turn_begins_is_not_repaired_as_well(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    c, session_id = await conversation(world)
    parent, child = (await c.say(session_id, "delegate")).turn.run_id, str(uuid.uuid4())
    await world.begin(parent)
    call = {"type": "tool_call", "id": "k", "name": "delegate", "input": {}}
    event = turns_pb2.NewEvent(step="1:1:call:0", payload=msgspec.json.encode(call))
    await world.runner("AppendTurnEvents", run_id=parent, attempt=1, events=[event])
    await world.runner(
        "SpawnChild",
        run_id=parent,
        attempt=1,
        child_run_id=child,
        title="Child",
        title_source="system",
        message=msgspec.json.encode({"type": "message", "role": "user", "content": "do it"}),
        parent_tool_call_id="k",
        root_run_id=parent,
        depth=1,
    )
    await world.finish(parent, status="waiting")
    other = (await c.say(session_id, "and now?")).turn.run_id
    result = {"type": "tool_result", "toolCallId": "k", "name": "delegate", "output": {"status": "succeeded"}}
    read_events, reads = turns.read_events, []

    async def answered_meanwhile(db: Any, session: str, *after: int) -> Any:
        found = await read_events(db, session, *after)
        reads.append(session)
        if len(reads) == 1:
            payload = msgspec.json.encode(result)
            await world.runner("AnswerCall", run_id=parent, child_run_id=child, tool_call_id="k", payload=payload)
        return found

    monkeypatch.setattr(turns, "read_events", answered_meanwhile)
    begun = await world.begin(other)
    results = [event for event in await c.events(session_id) if event["type"] == "tool_result"]
    assert results == [result], "the child's own answer, and nothing else"
    assert reads == [session_id, session_id], "once to begin, once under the lock"
    assert [event.seq for event in begun.events] == [1, 2, 3, 4]
