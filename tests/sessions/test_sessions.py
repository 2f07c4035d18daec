"""Sessions over gRPC: create, read, page, rename, override, delete."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from libs import wire
from tests.sessions.world import NIL, Client, World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def child(world: World, parent: str, agent_id: str = "") -> str:
    """A delegated session, which no call of this service makes yet."""
    (row,) = await world.sql(
        """INSERT INTO sessions
             (id, agent_id, owner, title, title_source, parent_session_id, run_id, created_at, updated_at)
           SELECT gen_random_uuid()::text, a.id, a.owner, 'Part', 'agent', p.id, 'run', p.created_at, p.updated_at
           FROM sessions p JOIN agents a ON a.id = coalesce(nullif($2, ''), p.agent_id) WHERE p.id = $1 RETURNING id""",
        parent,
        agent_id,
    )
    return row["id"]


async def pages(c: Client, limit: int, **fields: Any) -> list[list[Any]]:
    """Every page."""
    found: list[list[Any]] = []
    cursor = b""
    while True:
        page = await c("ListSessions", limit=limit, cursor=cursor, **fields)
        found.append(list(page.sessions))
        if not page.more:
            return found
        last = page.sessions[-1]
        cursor = wire.encode({"updatedBefore": last.updated_at, "idBefore": last.id})
        assert len(found) < 300


async def test_create_and_get(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    session_id = await c.session(agent_id, title="  Named ")
    got = await c("GetSession", session_id=session_id)
    s = got.session
    assert (s.id, s.account, s.agent_id, s.title, s.status) == (session_id, c.id, agent_id, "Named", "idle")
    assert s.created_at == s.updated_at and not got.events and got.access_role == "owner" and got.last_seq == 0
    for name in ("parent_session_id", "run_id", "description"):
        assert not s.HasField(name)
    assert (s.plan, s.model_override, s.started_by_trigger, s.child_session_count) == (b"", b"", b"", 0)
    assert not (await c("GetSession", session_id=session_id, without_prompt=True)).system_prompt


async def test_titles(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    for placeholder in ("new chat", "Untitled Session"):
        assert not (await c.get(await c.session(agent_id, title=placeholder))).HasField("title")
    session_id = await c.session(agent_id)
    for bad, wrong in (("", "is required"), ("é" * 129, "is too large"), ("a\0", "contains an invalid character")):
        await c.fails(400, f"Session title {wrong}", "CreateSession", agent_id=agent_id, title=bad)
        await c.fails(400, f"Session title {wrong}", "UpdateSession", session_id=session_id, title=bad)
    ears = await world.ears(c.id)
    updated = (await c("UpdateSession", session_id=session_id, title=" new chat ")).session
    assert updated.title == "new chat" and updated.version == 2
    changed, hint = await ears.until("session_changed", "session-updated")
    assert changed.session_changed.session == updated == await c.get(session_id)
    assert (hint.agent_id, hint.account_hint.session_id) == (agent_id, session_id)


async def test_after_seq(world: World) -> None:
    c = world.account()
    session_id = await c.session(await c.agent())
    for text in "ab":
        await world.answer((await c.say(session_id, text)).turn)
    every = (await c("GetSession", session_id=session_id)).events
    for after in range(6):
        got = await c("GetSession", session_id=session_id, after_seq=after)
        assert list(got.events) == list(every[after:]) and got.last_seq == 4
    await c.fails(400, "afterSeq must be a non-negative integer", "GetSession", session_id=session_id, after_seq=-1)
    x = world.account()
    await x.fails(404, "Session not found", "GetSession", session_id=session_id, after_seq=-1)


async def test_pages(world: World) -> None:
    c = world.account()
    agents = [await c.agent() for _ in range(2)]
    ids = await asyncio.gather(*(c.session(agents[i % 2]) for i in range(17)))
    # Several share a millisecond, and ids decide.
    await world.sql("UPDATE sessions SET updated_at = updated_at / 50 * 50 WHERE owner = $1", c.id)
    for limit in (1, 3, 7, 17, 40):
        found = await pages(c, limit)
        flat = [s for page in found for s in page]
        keys = [(s.updated_at, s.id) for s in flat]
        assert keys == sorted(keys, reverse=True) and sorted(s.id for s in flat) == sorted(ids)
        assert all(len(page) == limit for page in found[:-1])
    flat = [s for page in await pages(c, 2, agent_id=agents[0]) for s in page]
    assert sorted(s.id for s in flat) == sorted(ids[::2])
    assert len((await c("ListSessions")).sessions) == 17


async def test_a_page_spans_own_and_joined_agents(world: World) -> None:
    c, other = world.account(), world.account()
    own, joined, foreign = await c.agent(), await other.agent(), await other.agent()
    await other("InviteAgentCollaborator", agent_id=joined, account_id=c.id, role="reader")
    shared = await other.session(joined)
    assert not (await c("ListSessions")).sessions, "a pending invitation shows nothing"
    await c("AcceptAgentInvite", agent_id=joined)
    mine = [await c.session(own) for _ in range(3)]
    await other.session(foreign)
    flat = [s.id for page in await pages(c, 2) for s in page]
    assert sorted(flat) == sorted([shared, *mine])
    listed = (await c("ListSessions")).agents
    assert {(a.id, a.access_role) for a in listed} == {(own, "owner"), (joined, "reader")}


async def test_cursors(world: World) -> None:
    c = world.account()
    session_id = await c.session(await c.agent())
    at = (await c.get(session_id)).updated_at

    async def seen(updated: int, before: str) -> bool:
        cursor = wire.encode({"updatedBefore": updated, "idBefore": before})
        return bool((await c("ListSessions", cursor=cursor)).sessions)

    assert not await seen(at, session_id) and await seen(at, session_id + "0") and await seen(at, session_id + "\0x")
    assert await seen(at, "~") and not await seen(at, "!") and await seen(at + 1, "!") and not await seen(at - 1, "~")
    assert await seen(1 << 63, "a")
    text = "Session cursor must be an object"
    await c.fails(400, text, "ListSessions", cursor=wire.encode(None))
    await c.fails(404, "Agent not found", "ListSessions", agent_id=NIL, cursor=wire.encode(None))
    await c.fails(404, "Session not found", "ListSessions", parent_session_id=NIL)


async def test_children(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    parent = await c.session(agent_id)
    part = await child(world, parent)
    assert (await c.get(parent)).child_session_count == 1
    assert (await c.get(part)).parent_session_id == parent
    for fields in ({}, {"include_children": False}, {"agent_id": agent_id}):
        got = await c("ListSessions", parent_session_id=parent, **fields)
        assert [s.id for s in got.sessions] == [part]
    for fields, expected in (({}, {parent, part}), ({"include_children": False}, {parent})):
        for more in ({}, {"agent_id": agent_id}):
            assert {s.id for s in (await c("ListSessions", **fields, **more)).sessions} == expected
    assert {s.id for s in (await c("GetAgent", agent_id=agent_id)).sessions} == {parent, part}
    ears = await world.ears(c.id)
    await c("DeleteSession", session_id=parent)
    changed, _ = await ears.until("session_changed", "session-deleted")
    assert not changed.session_changed.session.HasField("parent_session_id")
    assert changed.session_changed.session == await c.get(part)


async def test_deleting_a_child_is_seen_at_its_parent(world: World) -> None:
    c = world.account()
    parent = await c.session(await c.agent())
    part = await child(world, parent)
    ears = await world.ears(c.id)
    await c("DeleteSession", session_id=part)
    changed, _ = await ears.until("session_changed", "session-deleted")
    assert changed.session_changed.session.id == parent
    assert changed.session_changed.session.child_session_count == 0


async def test_overrides(world: World) -> None:
    c = world.account()
    session_id = await c.session(await c.agent())
    text = "Nothing to update: provide a title or a model override"
    await c.fails(400, text, "UpdateSession", session_id=session_id)
    for value, text in (
        (5, "Model override must be a provider/model object or null"),
        ({"provider": "gone", "model": "m"}, "Model provider not found"),
        ({"provider": "stub", "model": "m", "reasoningLevel": "odd"}, "Reasoning level is invalid"),
    ):
        await c.fails(400, text, "UpdateSession", session_id=session_id, model_override=wire.encode(value))
    world.providers.providers[c.id, "oa"] = "openai"
    value = {"provider": "oa", "model": "gpt-5", "reasoningLevel": "low"}
    got = (await c("UpdateSession", session_id=session_id, title="t", model_override=wire.encode(value))).session
    assert json.loads(got.model_override) == value and got.title == "t"
    begun = await world.begin((await c.say(session_id)).turn.run_id)
    assert (begun.model_provider, begun.model, begun.reasoning_level) == ("oa", "gpt-5", "low")
    assert (begun.fallback_provider, begun.fallback_model, begun.fallback_reasoning_level) == ("stub", "stub-1", "")
    effective = wire.decode(begun.definition)
    assert (effective["modelProvider"], effective["reasoningLevel"]) == ("oa", "low")
    got = (await c("UpdateSession", session_id=session_id, model_override=wire.encode(None))).session
    assert got.model_override == b"" and got.title == "t"


async def test_equal_creations(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    m = await world.member(c, agent_id)
    fields = {"agent_id": agent_id, "title": "T", "client_request_id": "r"}
    made = await asyncio.gather(*(c("CreateSession", **fields) for _ in range(6)))
    assert len({x.session_id for x in made}) == 1
    assert await m("CreateSession", **fields) == made[0], "ids of agent-scoped creations belong to the owner"
    text = "Client request ID payload mismatch"
    await c.fails(409, text, "CreateSession", **{**fields, "title": "U"})
    await c.fails(409, text, "CreateSession", agent_id=agent_id, client_request_id="r")
    await c("DeleteSession", session_id=made[0].session_id)
    assert await c("CreateSession", **fields) == made[0]
    await c.fails(404, "Session not found", "GetSession", session_id=made[0].session_id)


async def test_heads(world: World) -> None:
    c = world.account()
    session_id = await c.session(await c.agent())
    await c.say(session_id)
    (head,) = (await world.client("edge")("GetHeads", session_ids=[session_id, NIL, "a\0b"])).heads
    assert (head.session_id, head.last_seq, head.version) == (session_id, 1, 2)
    await world.runner.fails(403, "This call is internal", "GetHeads", session_ids=[])
    await c.fails(403, "This call is internal", "BeginTurn", run_id=NIL)
