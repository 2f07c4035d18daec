"""Answers to delegated calls that arrive while another turn of the session begins."""

from __future__ import annotations

import asyncio
import uuid

import msgspec
import pytest
from seed.sessions.v1 import turns_pb2

from tests.sessions.test_messages import conversation
from tests.sessions.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_call_answered_while_another_turn_begins_is_not_repaired_as_well(world: World) -> None:
    for delay in range(12):
        c, session_id = await conversation(world)
        parent = (await c.say(session_id, "delegate")).turn
        await world.begin(parent.run_id)
        call = {"type": "tool_call", "id": "k", "name": "delegate", "input": {}}
        event = turns_pb2.NewEvent(step="1:1:call:0", payload=msgspec.json.encode(call))
        await world.runner("AppendTurnEvents", run_id=parent.run_id, attempt=1, events=[event])
        child = str(uuid.uuid4())
        brief = msgspec.json.encode({"type": "message", "role": "user", "content": "do it"})
        await world.runner(
            "SpawnChild",
            run_id=parent.run_id,
            attempt=1,
            child_run_id=child,
            title="Child",
            title_source="system",
            message=brief,
            parent_tool_call_id="k",
            root_run_id=parent.run_id,
            depth=1,
        )
        await world.finish(parent.run_id, status="waiting")
        other = (await c.say(session_id, "and now?")).turn
        result = {"type": "tool_result", "toolCallId": "k", "name": "delegate", "output": {"status": "succeeded"}}

        async def answer(payload: bytes, run_id: str, child: str, pause: float) -> None:
            await asyncio.sleep(pause)
            await world.runner("AnswerCall", run_id=run_id, child_run_id=child, tool_call_id="k", payload=payload)

        await asyncio.gather(
            world.begin(other.run_id), answer(msgspec.json.encode(result), parent.run_id, child, delay / 1000)
        )
        results = [event for event in await c.events(session_id) if event["type"] == "tool_result"]
        assert results == [result], "the child's own answer, and nothing else"
