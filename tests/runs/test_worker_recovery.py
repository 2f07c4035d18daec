"""A claim takes up what an earlier one has decided, said or delivered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from seed.sessions.v1 import types_pb2

from services.runs.worker.endings import RESULT_MISSING, RESULT_REFUSED
from tests.runs.fakes import Conversation
from tests.runs.workshop import Workshop

OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def _again(shop: Workshop, session: Conversation) -> types_pb2.TurnStart:
    """The queued run of a session's first message, as a worker that died has left it."""
    first = types_pb2.TurnStart(event_ids=[session.events[0].id])
    start = shop.sessions.track(await _start(shop, session, first))
    await shop.begin(start)
    await _set(shop, start.run_id, attempt=1)
    return start


async def _start(shop: Workshop, session: Conversation, first: types_pb2.TurnStart) -> types_pb2.TurnStart:
    made = shop.sessions.open(shop.sessions.conversation())
    return types_pb2.TurnStart(
        run_id=made.run_id,
        session_id=session.id,
        agent_id=made.agent_id,
        owner=made.owner,
        title="count",
        origin="agent",
        event_ids=first.event_ids,
        parent_run_id="a-parent",
        root_run_id="a-parent",
        parent_tool_call_id="call",
        depth=1,
    )


async def _set(shop: Workshop, run_id: str, **columns: Any) -> None:
    async with shop.db.connection() as connection:
        for name, value in columns.items():
            await connection.execute(f"UPDATE runs SET {name} = $1 WHERE id = $2", value, run_id)


def _typed(shop: Workshop, *given: tuple[Any, bool]) -> Conversation:
    """The conversation of a typed child that has called return_result, each time rightly or not."""
    session = shop.sessions.conversation()
    session.spec = json.dumps({"output": OUTPUT}).encode()
    session.add(type="message", role="user", content="count")
    for n, (value, right) in enumerate(given):
        session.add(type="tool_call", id=f"c{n}", name="return_result", input=value)
        result = {"output": {"ok": True}} if right else {"error": "no"}
        session.add(type="tool_result", toolCallId=f"c{n}", name="return_result", **result)
    return session


async def test_a_result_that_was_taken_ends_the_child(shop: Workshop) -> None:
    start = await _again(shop, _typed(shop, ({"n": "x"}, False), ({"n": 3}, True)))
    await shop.worker()
    row = await shop.ended(start.run_id)
    assert (row["status"], json.loads(row["output"])) == ("succeeded", {"n": 3})
    assert shop.provider.requests == []


async def test_results_that_were_refused_still_count(shop: Workshop) -> None:
    start = await _again(shop, _typed(shop, *[({"n": "x"}, False)] * 3))
    await shop.worker()
    row = await shop.ended(start.run_id)
    assert (row["status"], json.loads(row["error"])) == (
        "failed",
        {"code": "output-schema", "message": RESULT_REFUSED},
    )
    assert shop.provider.requests == []


@pytest.mark.parametrize(
    ("status", "message", "http", "code"),
    [
        ("succeeded", "", 0, None),
        ("failed", RESULT_MISSING, 502, "output-schema"),
        ("failed", "boom", 502, "provider-error"),
        ("failed", "no key", 400, "config-error"),
    ],
)
async def test_an_ending_that_is_recorded_in_the_log_is_the_ending(
    shop: Workshop, status: str, message: str, http: int, code: str | None
) -> None:
    session = shop.sessions.conversation()
    session.add(type="message", role="user", content="count")
    start = await _again(shop, session)
    debts = b'[{"kind":"typed-result"}]'
    await _set(shop, start.run_id, output=b'{"text":"three"}', unmet_obligations=debts)
    shop.sessions.turns[start.run_id].outcome = types_pb2.TurnOutcome(
        run_id=start.run_id, status=status, error_message=message, error_status=http
    )
    await shop.worker()
    row = await shop.ended(start.run_id)
    assert (row["status"], row["output"], row["unmet_obligations"]) == (status, b'{"text":"three"}', debts)
    assert (json.loads(row["error"])["code"] if row["error"] else None) == code
    assert shop.provider.requests == []
