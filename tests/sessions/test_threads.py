"""An account's sessions as its agents read them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.protocol import json_bytes
from services.sessions.domain import threads
from tests.sessions.world import NIL, World


@pytest.mark.asyncio(loop_scope="session")
async def test_listing_searching_and_reading(world: World) -> None:
    owner, other = world.account(), world.account()
    first, second = await owner.agent(name="First"), await owner.agent(name="Second")
    strange = await other.session(await other.agent(), title="Ärger")
    old = await owner.session(first, title="About Ärger & joy")
    new = await owner.session(second)
    for text in ('tell me of the Blue "Whale" ' + "x" * 200, "nothing"):
        await world.answer((await owner.say(new, text)).turn, "Ok.")
    runs = world.client("runs-worker", owner.id)

    async def found(**fields: object) -> list[tuple[str, str, str]]:
        r = await runs("ListThreads", **{"limit": 25, **fields})
        return [(t.session.id, t.agent_name, t.snippet) for t in r.threads]

    assert await found() == [(new, "Second", ""), (old, "First", "")]
    assert await found(limit=1) == [(new, "Second", "")]
    assert await found(agent_id=first) == [(old, "First", "")]
    assert await found(query="ärGER") == [(old, "First", "")]
    assert await found(query="ärGER", agent_id=second) == []
    [(hit, _, snippet)] = await found(query='blue "whale"')
    assert hit == new and snippet.startswith('tell me of the Blue "Whale" xxx') and snippet.endswith("x…")
    assert await found(query="toolCallId") == []

    read = await runs("ReadThread", session_id=new, events=3)
    assert [e.seq for e in read.events] == [2, 3, 4] and read.session.id == new
    assert json.loads(read.events[-1].payload)["content"] == "Ok."
    for missing in (strange, NIL, "a\0b"):
        await runs.fails(404, "Session not found", "ReadThread", session_id=missing, events=3)
    assert (await runs("CountThreads", agent_id=first)).threads == 1
    await owner.fails(403, "This call is internal", "ListThreads", limit=1)
    await world.client("runs-worker").fails(403, "This call is made for an account", "ListThreads", limit=1)


@given(st.text(), st.text(min_size=1), st.text())
def test_what_is_looked_for_is_found(before: str, query: str, after: str) -> None:
    text = before + query + after
    payload = json_bytes({"type": "message", "role": "user", "content": text})
    lowered = payload.decode().lower()
    assert threads.needle(query) in lowered or query.lower() not in text.lower()
    if query in text and query.isascii():
        assert threads.snippet(payload, query.lower())


def test_only_messages_have_snippets() -> None:
    result = json_bytes({"type": "tool_result", "output": "whale"})
    assert threads.snippet(result, "whale") == ""
