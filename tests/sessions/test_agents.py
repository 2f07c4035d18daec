"""Agents over gRPC: create, read, replace, delete; who may do it; what is told."""

from __future__ import annotations

import asyncio

import pytest

from libs import wire
from tests.sessions.world import NIL, World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_create_get_list(world: World) -> None:
    c = world.account()
    ears = await world.ears(c.id)
    agent_id = await c.agent(name=" First ", surplus=1)
    changed, hint = await ears.until("agent_changed", "agent-created")
    got = await c("GetAgent", agent_id=agent_id)
    a = got.agent
    assert (a.id, a.account, a.access_role, a.status, a.version) == (agent_id, c.id, "owner", "idle", 1)
    assert a.created_at == a.updated_at and not got.sessions
    definition = wire.decode(a.definition)
    assert definition["name"] == "First" and set(definition) == {"name", "systemPrompt", "modelProvider", "model"}
    assert definition["systemPrompt"][0]["block"]["text"] == "Be brief."
    assert list((await c("ListAgents")).agents) == [a]
    told = changed.agent_changed.agent
    assert told.access_role == "" and told.definition == a.definition and hint.agent_id == agent_id


async def test_rules_are_answered_as_400(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    for body, text in (
        (b"", "Agent definition is required"),
        (wire.encode(5), "Agent definition is required"),
        (wire.encode({}), "Agent name is required"),
        (wire.encode(c.definition(systemPrompt=5)), "System prompt must be blocks"),
        (wire.encode(c.definition(name="a\0")), "Agent name contains an invalid character"),
        (wire.encode(c.definition(modelProvider="gone")), "Model provider not found"),
        (wire.encode(c.definition(reasoningLevel="low")), "Model stub-1 does not support a reasoning level"),
        (wire.encode(c.definition(signingKeys=["gone"])), "Signing key not found"),
    ):
        await c.fails(400, text, "CreateAgent", definition=body)
        await c.fails(400, text, "UpdateAgent", agent_id=agent_id, definition=body)
    assert len((await c("ListAgents")).agents) == 1


async def test_update(world: World) -> None:
    c = world.account()
    agent_id = await c.agent(tools=["search"])
    session_id = await c.session(agent_id)
    ears = await world.ears(c.id)
    before = (await c("GetAgent", agent_id=agent_id)).agent
    got = await c("UpdateAgent", agent_id=agent_id, definition=wire.encode(c.definition(name="New")))
    definition = wire.decode(got.agent.definition)
    assert definition["name"] == "New" and "tools" not in definition and [s.id for s in got.sessions] == [session_id]
    assert got.agent.version == before.version + 1 and got.agent.updated_at >= before.updated_at
    assert (await c("GetAgent", agent_id=agent_id)).agent == got.agent
    await ears.until("agent_changed", "agent-updated")


async def test_newest_change_comes_first(world: World) -> None:
    c = world.account()
    ids = [await c.agent(name=n) for n in "abc"]
    await world.sql("UPDATE agents SET updated_at = updated_at - 10 WHERE owner = $1", c.id)
    await c("UpdateAgent", agent_id=ids[1], definition=wire.encode(c.definition()))
    listed = (await c("ListAgents")).agents
    assert listed[0].id == ids[1] and {a.id for a in listed} == set(ids)


async def test_what_one_may_not_see_looks_missing(world: World) -> None:
    c, x = world.account(), world.account()
    agent_id = await c.agent()
    pending = await world.member(c, agent_id, accept=False)
    for who in (x, pending):
        for missing in (agent_id, NIL, "a\0b"):
            await who.fails(404, "Agent not found", "GetAgent", agent_id=missing)
            await who.fails(404, "Agent not found", "DeleteAgent", agent_id=missing)
            await who.fails(404, "Agent not found", "UpdateAgent", agent_id=missing, definition=b"")
            await who.fails(404, "Agent not found", "CreateSession", agent_id=missing)
        assert not (await who("ListAgents")).agents
    await x.fails(400, "Agent ID is required", "GetAgent", agent_id="")
    await x.fails(400, "Agent ID is too large", "GetAgent", agent_id="x" * 257)


async def test_what_members_may_do(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    reader, writer = await world.member(c, agent_id, "reader"), await world.member(c, agent_id, "writer")
    world.providers.keys.add((c.id, "key"))
    definition = wire.encode(c.definition(name="New"))
    await reader.fails(403, "Write access is required", "UpdateAgent", agent_id=agent_id, definition=definition)
    await reader.fails(403, "Chat access is required", "CreateSession", agent_id=agent_id)
    for who in (reader, writer):
        await who.fails(403, "Only the agent owner can do this", "DeleteAgent", agent_id=agent_id)
    got = await writer("UpdateAgent", agent_id=agent_id, definition=definition)
    assert got.agent.access_role == "writer"
    signing = wire.encode(c.definition(signingKeys=["key"], modelProvider="gone"))
    text = "Only the agent owner can change signing accounts"
    await writer.fails(403, text, "UpdateAgent", agent_id=agent_id, definition=signing)
    await c("UpdateAgent", agent_id=agent_id, definition=wire.encode(c.definition(signingKey="key")))
    same = wire.encode(c.definition(signingKeys=["key"]))
    await writer("UpdateAgent", agent_id=agent_id, definition=same)
    await writer.fails(403, text, "UpdateAgent", agent_id=agent_id, definition=definition)
    assert {(a.id, a.access_role) for a in (await reader("ListAgents")).agents} == {(agent_id, "reader")}
    (session_id,) = [await writer.session(agent_id)]
    found = await reader("ResolveAccess", session_id=session_id)
    assert (found.agent_id, found.owner, found.role, found.member) == (agent_id, c.id, "reader", True)
    await reader.fails(403, "Write access is required", "ResolveAccess", session_id=session_id, need="writer")


async def test_access_is_named_as_asked(world: World) -> None:
    c, x = world.account(), world.account()
    agent_id = await c.agent()
    await x.fails(404, "Agent trigger not found", "ResolveAccess", agent_id=agent_id, noun="Agent trigger")
    await x.fails(404, "Session not found", "ResolveAccess", session_id=NIL)
    found = await c("ResolveAccess", agent_id=agent_id, need="owner")
    assert (found.role, found.member, found.definition) == ("owner", True, b"")
    told = await c("ResolveAccess", agent_id=agent_id, with_definition=True)
    assert told.definition == (await c("GetAgent", agent_id=agent_id)).agent.definition != b""
    await x.fails(404, "Agent not found", "ResolveAccess", agent_id=agent_id, with_definition=True)
    member = await world.member(c, agent_id, "reader")
    (joined,) = (await member("ListMemberships")).memberships
    assert (joined.agent_id, joined.owner, joined.role) == (agent_id, c.id, "reader")


async def test_an_equal_creation_acts_once(world: World) -> None:
    c = world.account()
    body = wire.encode(c.definition())
    first = await c("CreateAgent", definition=body, client_request_id="r")
    assert await c("CreateAgent", definition=body, client_request_id=" r ") == first
    other = wire.encode(c.definition(name="other"))
    text = "Client request ID payload mismatch"
    await c.fails(409, text, "CreateAgent", definition=other, client_request_id="r")
    del world.providers.providers[c.id, "stub"]
    assert await c("CreateAgent", definition=body, client_request_id="r") == first, "the first answer stands"
    await c.fails(400, "Model provider not found", "CreateAgent", definition=body, client_request_id="s")
    world.providers.providers[c.id, "stub"] = "custom"
    assert (await c("CreateAgent", definition=body, client_request_id="s")).agent_id != first.agent_id
    for bad, wrong in (("", "is required"), ("x" * 257, "is too large"), ("\0", "contains an invalid character")):
        await c.fails(400, f"Client request ID {wrong}", "CreateAgent", definition=body, client_request_id=bad)
    assert len((await c("ListAgents")).agents) == 2


async def test_equal_creations_at_once_make_one(world: World) -> None:
    c = world.account()
    body = wire.encode(c.definition())
    ears = await world.ears(c.id)
    made = await asyncio.gather(*(c("CreateAgent", definition=body, client_request_id="r") for _ in range(8)))
    assert len({m.agent_id for m in made}) == 1 and len((await c("ListAgents")).agents) == 1
    await ears.until("agent_changed", "agent-created")
