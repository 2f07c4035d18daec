"""ListAgents, CreateAgent, GetAgent, UpdateAgent, DeleteAgent over HTTP: access, errors, effects, hints."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET

from libs.protocol.actions import CreateAgent, GetAgent, ListAgents, UpdateAgent
from libs.protocol.ws import WsAgentChange
from tests.support.kit import NOWHERE, World, refused, until


async def names(world: World, client: Any) -> list[str]:
    return [agent.definition.name for agent in (await client.call(ListAgents())).agents]


async def test_list_shows_own_and_joined_agents_newest_change_first(world: World) -> None:
    owner = await world.owner(name="First")
    other = await world.owner(name="Theirs")
    second = await owner.client.create_agent(owner.definition(name="Second"))
    assert await names(world, owner.client) == ["Second", "First"]
    await owner.client.call(UpdateAgent(agent_id=owner.agent, definition=owner.definition(name="First, changed")))
    assert await names(world, owner.client) == ["First, changed", "Second"]

    reader = await world.member(other, "reader")
    [joined] = (await reader.call(ListAgents())).agents
    assert (joined.id, joined.access_role, joined.account) == (other.agent, "reader", other.client.account)
    assert second not in [agent.id for agent in (await other.client.call(ListAgents())).agents]
    assert (await world.client().call(ListAgents())).agents == []


async def test_an_invitation_and_public_reading_do_not_list(world: World) -> None:
    owner = await world.owner()
    invited = world.client()
    await owner.client.call("InviteAgentCollaborator", agentId=owner.agent, accountId=invited.account, role="writer")
    await owner.client.call("SetAgentPublicRead", agentId=owner.agent, publicRead=True)
    assert (await invited.call(ListAgents())).agents == []
    assert (await invited.call(GetAgent(agent_id=owner.agent))).agent.access_role == "reader"


async def test_a_created_agent_is_as_defined_and_answers_with_blocks(world: World) -> None:
    owner = await world.owner()
    definition = owner.definition(
        name="  Notes  ", system_prompt="You keep **notes**.", tools=["plan"], metadata={"a": 1}
    )
    agent_id = await owner.client.create_agent(definition)
    answered = await owner.client.call(GetAgent(agent_id=agent_id))
    agent = answered.agent
    assert (agent.id, agent.account, agent.status, agent.access_role) == (
        agent_id,
        owner.client.account,
        "idle",
        "owner",
    )
    assert (agent.definition.name, agent.definition.tools, agent.definition.metadata) == ("Notes", ["plan"], {"a": 1})
    assert isinstance(agent.definition.system_prompt, list)
    assert agent.definition.system_prompt[0].block["type"] == "Paragraph"
    assert (agent.public_read, agent.public_chat) == (False, False)
    assert agent.created_at == agent.updated_at > 0
    assert (answered.sessions, answered.session_count) == ([], 0)


async def test_creation_is_idempotent_by_its_client_id(world: World) -> None:
    owner = await world.owner()
    make = CreateAgent(definition=owner.definition(name="Once"), client_request_id="r-1")
    first = (await owner.client.call(make)).agent_id
    assert (await owner.client.call(make)).agent_id == first
    assert (await names(world, owner.client)).count("Once") == 1
    with refused(409, "Client request ID payload mismatch"):
        await owner.client.call(CreateAgent(definition=owner.definition(name="Twice"), client_request_id="r-1"))
    with refused(400, "Client request ID is too large"):
        await owner.client.call(CreateAgent(definition=owner.definition(), client_request_id="x" * 257))


async def test_equal_creations_at_once_make_one_agent(world: World) -> None:
    owner = await world.owner()
    make = CreateAgent(definition=owner.definition(name="Raced"), client_request_id="race")
    results = await asyncio.gather(*(owner.client.call(make) for _ in range(8)), return_exceptions=True)
    made = {r.agent_id for r in results if not isinstance(r, BaseException)}
    assert len(made) == 1
    assert {getattr(r, "status", 409) for r in results if isinstance(r, BaseException)} <= {409}
    assert (await names(world, owner.client)).count("Raced") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "Agent name is required"),
        ({"name": 7}, "Agent name is required"),
        ({"name": "x" * 257}, "Agent name is too large"),
        ({"systemPrompt": " "}, "System prompt is required"),
        ({"systemPrompt": 1}, "System prompt must be blocks"),
        ({"systemPrompt": "x" * 65_537}, "System prompt is too large"),
        ({"modelProvider": ""}, "Model provider is required"),
        ({"model": ""}, "Model is required"),
        ({"reasoningLevel": "much"}, "Reasoning level is invalid"),
        ({"enabledModels": {}}, "Enabled models must be an array"),
        ({"enabledModels": [1]}, "Enabled models must be provider/model objects"),
        ({"tools": "plan"}, "Tools must be an array"),
        ({"tools": ["x"] * 33}, "Too many tools"),
        ({"tools": [" x"]}, "Tools must be non-empty trimmed strings"),
        ({"metadata": []}, "Metadata must be an object"),
        ({"metadata": {"x": "y" * 20_000}}, "Metadata is too large"),
        ({"modelProvider": "nobody"}, "Model provider not found"),
        ({"reasoningLevel": "high"}, "Model scripted-1 does not support a reasoning level"),
    ],
)
async def test_a_bad_definition_is_refused_alike_by_create_and_update(
    world: World, change: dict[str, Any], message: str
) -> None:
    owner = await world.owner()
    good = {"name": "A", "systemPrompt": "P", "modelProvider": "scripted", "model": "scripted-1"}
    with refused(400, message):
        await owner.client.call("CreateAgent", definition={**good, **change})
    with refused(400, message):
        await owner.client.call("UpdateAgent", agentId=owner.agent, definition={**good, **change})


async def test_a_definition_is_required(world: World) -> None:
    owner = await world.owner()
    for action in ({"_": "CreateAgent"}, {"_": "UpdateAgent", "agentId": owner.agent, "definition": None}):
        with refused(400, "Agent definition is required"):
            await owner.client.send(action)


async def test_update_replaces_the_whole_definition(world: World) -> None:
    owner = await world.owner(tools=["plan"], metadata={"a": 1})
    answered = await owner.client.call(UpdateAgent(agent_id=owner.agent, definition=owner.definition(name="New")))
    assert answered.agent.definition.name == "New"
    assert answered.agent.definition.tools is UNSET
    assert answered.agent.definition.metadata is UNSET
    assert answered.agent.updated_at >= answered.agent.created_at
    assert (await owner.client.call(GetAgent(agent_id=owner.agent))).agent == answered.agent


async def test_who_may_read_write_and_own(world: World) -> None:
    owner = await world.owner()
    reader, writer, stranger = await world.member(owner, "reader"), await world.member(owner, "writer"), world.client()
    update = UpdateAgent(agent_id=owner.agent, definition=owner.definition(name="Changed"))
    delete = {"_": "DeleteAgent", "agentId": owner.agent}
    for client, role in ((reader, "reader"), (writer, "writer")):
        assert (await client.call(GetAgent(agent_id=owner.agent))).agent.access_role == role
    for action in (GetAgent(agent_id=owner.agent), update):
        with refused(404, "Agent not found"):
            await stranger.call(action)
    with refused(404, "Agent not found"):
        await stranger.send(delete)
    with refused(403, "Write access is required"):
        await reader.call(update)
    assert (await writer.call(update)).agent.definition.name == "Changed"
    for client in (reader, writer):
        with refused(403, "Only the agent owner can do this"):
            await client.send(delete)
    with refused(404, "Agent not found"):
        await owner.client.call(GetAgent(agent_id=NOWHERE))
    with refused(400, "Agent ID is required"):
        await owner.client.send({"_": "GetAgent"})


async def test_delete_takes_everything_with_it(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    await owner.client.message(session, "hi")
    [run] = await owner.runs(session)
    assert (await owner.client.call("DeleteAgent", agentId=owner.agent)).agent_id == owner.agent
    with refused(404, "Agent not found"):
        await owner.client.call(GetAgent(agent_id=owner.agent))
    with refused(404, "Session not found"):
        await owner.client.session(session)
    with refused(404, "Run not found"):
        await owner.client.call("GetRun", runId=run.id)
    assert (await owner.client.call(ListAgents())).agents == []
    with refused(404, "Agent not found"):
        await owner.client.call("DeleteAgent", agentId=owner.agent)


async def test_agent_actions_send_their_hints_and_changes(world: World) -> None:
    owner = await world.owner()
    account = world.watch(owner.client, f"account/{owner.client.account}")
    await until(lambda: account.events, what="subscribed")
    made = await owner.client.create_agent(owner.definition(name="Watched"))
    agent = world.watch(owner.client, f"agents/{made}")
    await until(lambda: agent.events, what="subscribed")
    await owner.client.call(UpdateAgent(agent_id=made, definition=owner.definition(name="Watched, changed")))
    change = await agent.kind(WsAgentChange)
    assert (change.value.id, change.value.definition.name) == (made, "Watched, changed")
    assert change.value.access_role == "owner"
    await owner.client.call("DeleteAgent", agentId=made)
    wanted = ["agent-created", "agent-updated", "agent-deleted"]
    await until(lambda: [h for h in account.hints() if h.startswith("agent-")] == wanted, what="the three hints")
