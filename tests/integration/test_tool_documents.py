"""ListAgentTools, SaveAgentTool, DeleteAgentTool over HTTP: access, rules, effects, hints, repeats."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET

from libs.client import ApiError, Client, Key
from libs.protocol import to_wire
from libs.protocol.memory import AgentToolInfo
from libs.protocol.tools import CALLABLES, builtin_document, document_bytes
from tests.protocol.test_tools import DOUBLE, DOUBLE_CID
from tests.support.kit import NOWHERE, World, refused, until

TOOL = {key: DOUBLE[key] for key in ("name", "description", "input", "source", "runtime")}


async def save(client: Client, agent: str, previous: Any = None, **change: Any) -> AgentToolInfo:
    more = {} if previous is None else {"previousName": previous}
    return (await client.call("SaveAgentTool", agentId=agent, tool={**TOOL, **change}, **more)).tool


async def authored(client: Client, agent: str) -> dict[str, AgentToolInfo]:
    listed = (await client.call("ListAgentTools", agentId=agent)).tools
    return {tool.name: tool for tool in listed if tool.kind != "builtin"}


async def test_a_new_tool_is_listed_as_it_was_answered(world: World) -> None:
    owner = await world.owner()
    answered = await owner.client.call("SaveAgentTool", agentId=f" {owner.agent} ", tool={**TOOL, "name": " double "})
    tool = answered.tool
    assert (answered.agent_id, tool.cid, tool.created_at) == (owner.agent, DOUBLE_CID, tool.updated_at)
    facts = {"cid": DOUBLE_CID, "enabled": True, "granted": True, "createdAt": tool.created_at}
    assert to_wire(tool) == {**DOUBLE, **facts, "updatedAt": tool.updated_at}
    listed = await owner.client.call("ListAgentTools", agentId=owner.agent)
    assert listed.agent_id == owner.agent
    assert [t for t in listed.tools if t.kind == "lambda"] == [tool]


async def test_a_tool_is_replaced_and_keeps_its_age(world: World) -> None:
    owner = await world.owner()
    first = await save(owner.client, owner.agent)
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    changed = {"description": "Doubles n twice. Yes.", "output": output, "runtime": "python", "summary": "s" * 150}
    second = await save(owner.client, owner.agent, "double", **changed)
    assert (second.output, second.runtime, second.summary) == (output, "python", "s" * 140)
    assert second.cid != first.cid and second.created_at == first.created_at < second.updated_at
    third = await save(owner.client, owner.agent, "double", description="Doubles n twice. Yes.")
    assert (third.summary, third.output, third.runtime) == ("Doubles n twice.", UNSET, "typescript")
    assert await authored(owner.client, owner.agent) == {"double": third}


async def test_a_renamed_tool_keeps_its_age_and_frees_its_name(world: World) -> None:
    owner = await world.owner()
    first = await save(owner.client, owner.agent)
    second = await save(owner.client, owner.agent, " double ", name="twice")
    assert (second.name, second.created_at) == ("twice", first.created_at)
    assert second.cid != first.cid, "the name is part of the document"
    assert await authored(owner.client, owner.agent) == {"twice": second}
    await save(owner.client, owner.agent)
    assert list(await authored(owner.client, owner.agent)) == ["double", "twice"]


async def test_each_agent_has_its_own(world: World) -> None:
    owner = await world.owner()
    other = await owner.client.create_agent(owner.definition(name="Other"))
    await save(owner.client, owner.agent)
    assert await authored(owner.client, other) == {}
    with refused(404, 'Tool "double" not found'):
        await save(owner.client, other, "double")
    assert (await save(owner.client, other)).cid == DOUBLE_CID


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "Tool name is required"),
        ({"name": " "}, "Tool name is required"),
        ({"name": "a" * 257}, "Tool name is too large"),
        ({"name": "a\0b"}, "Tool name contains an invalid character"),
        ({"name": "Double"}, "Tool name must be lowercase [a-z0-9_-], start with a letter, 2-64 chars"),
        ({"name": "d"}, "Tool name must be lowercase [a-z0-9_-], start with a letter, 2-64 chars"),
        ({"name": "search"}, '"search" is a builtin tool or verb and cannot be replaced'),
        ({"name": "delegate"}, '"delegate" is a builtin tool or verb and cannot be replaced'),
        ({"description": ""}, "Tool document requires a description"),
        ({"description": "x" * 16385}, "Tool description is too large"),
        ({"source": " "}, "Lambda tool document requires source code"),
        ({"source": "x" * 262145}, "Lambda source is too large"),
        ({"input": {"anyOf": []}}, "Tool input schema is not supported: $: keyword anyOf is not supported"),
        (
            {"output": {"type": "object", "properties": {"a": {"type": "any"}}}},
            "Tool output schema is not supported: $.a: unknown type any",
        ),
    ],
)
async def test_rules_of_tools(world: World, change: dict[str, Any], message: str) -> None:
    owner = await world.owner()
    with refused(400, message):
        await save(owner.client, owner.agent, **change)
    assert await authored(owner.client, owner.agent) == {}


async def test_arguments_that_are_none(world: World) -> None:
    owner = await world.owner()
    call = owner.client.call
    for tool in (None, [], "double", 5):
        with refused(400, "Tool document must be an object"):
            await call("SaveAgentTool", agentId=owner.agent, tool=tool)
    for previous in (None, "", 5):
        with refused(400, "Previous tool name is required"):
            await call("SaveAgentTool", agentId=owner.agent, tool=TOOL, previousName=previous)
    with refused(400, "Previous tool name is too large"):
        await save(owner.client, owner.agent, "a" * 257)
    for name in ("", None):
        with refused(400, "Tool name is required"):
            await call("DeleteAgentTool", agentId=owner.agent, name=name)
    for action, more in (("ListAgentTools", {}), ("SaveAgentTool", {"tool": {}}), ("DeleteAgentTool", {"name": ""})):
        with refused(400, "Agent ID is required"):
            await call(action, agentId="", **more)
        with refused(404, "Agent not found"):
            await call(action, agentId=NOWHERE, **more)


async def test_what_stands_in_the_way_of_a_name_comes_before_the_rules(world: World) -> None:
    owner = await world.owner()
    await save(owner.client, owner.agent)
    await save(owner.client, owner.agent, name="other")
    with refused(409, 'A tool named "double" already exists'):
        await save(owner.client, owner.agent, source="")
    with refused(409, 'A tool named "other" already exists'):
        await save(owner.client, owner.agent, "double", name="other", description="")
    with refused(404, 'Tool "gone" not found'):
        await save(owner.client, owner.agent, "gone", name="double", source="")
    with refused(404, 'Tool "read" not found'):
        await save(owner.client, owner.agent, "read")
    assert {t.cid for t in (await authored(owner.client, owner.agent)).values()} > {DOUBLE_CID}


async def test_deleting(world: World) -> None:
    owner = await world.owner()
    await save(owner.client, owner.agent)
    first = await owner.client.call("DeleteAgentTool", agentId=owner.agent, name=" double ")
    again = await owner.client.call("DeleteAgentTool", agentId=owner.agent, name="double")
    assert [(r.agent_id, r.name, r.deleted) for r in (first, again)] == [
        (owner.agent, "double", True),
        (owner.agent, "double", False),
    ]
    assert await authored(owner.client, owner.agent) == {}


async def test_builtin_tools_are_there_and_stay_as_they_are(world: World) -> None:
    owner = await world.owner()
    listed = (await owner.client.call("ListAgentTools", agentId=owner.agent)).tools
    assert [t.name for t in listed] == sorted(CALLABLES)
    for tool in listed:
        document = builtin_document(CALLABLES[tool.name])
        assert (tool.kind, tool.enabled, tool.granted) == ("builtin", True, True)
        assert tool.cid == document_bytes(document)[0]
        assert {**to_wire(tool), "binding": tool.name}.items() >= document.items()
        assert "binding" not in to_wire(tool)
        with refused(400, "Builtin tools cannot be edited"):
            await save(owner.client, owner.agent, tool.name, name="mine")
        message = f'"{tool.name}" is a builtin tool; disable it via the agent\'s tool grants instead'
        with refused(400, message):
            await owner.client.call("DeleteAgentTool", agentId=owner.agent, name=tool.name)
    assert (await owner.client.call("ListAgentTools", agentId=owner.agent)).tools == listed


async def test_grants_follow_the_definition(world: World) -> None:
    owner = await world.owner(tools=[])
    await save(owner.client, owner.agent)

    async def granted() -> dict[str, bool]:
        listed = (await owner.client.call("ListAgentTools", agentId=owner.agent)).tools
        return {tool.name: tool.granted for tool in listed}

    assert await granted() == {**dict.fromkeys(CALLABLES, False), "double": True}
    for name in CALLABLES:
        definition = owner.definition(tools=[name])
        await owner.client.call("UpdateAgent", agentId=owner.agent, definition=to_wire(definition))
        assert await granted() == {**dict.fromkeys(CALLABLES, False), name: True, "double": True}


async def test_who_may_do_what(world: World) -> None:
    owner = await world.owner()
    writer, reader = await world.member(owner, "writer"), await world.member(owner, "reader")
    made = await save(writer, owner.agent)
    assert await authored(reader, owner.agent) == {"double": made}
    deleting = reader.call("DeleteAgentTool", agentId=owner.agent, name="a")
    for call in (save(reader, owner.agent, name="other"), deleting):
        with refused(403, "Write access is required"):
            await call
    stranger = world.client()
    with refused(404, "Agent not found"):
        await authored(stranger, owner.agent)
    await owner.client.call("SetAgentPublicRead", agentId=owner.agent, publicRead=True)
    assert await authored(stranger, owner.agent) == {"double": made}
    with refused(403, "Write access is required"):
        await save(stranger, owner.agent, name="other")
    with refused(403, "Write access is required"):
        await stranger.call("SaveAgentTool", agentId=owner.agent, tool=None)


async def test_changes_are_told_to_members_and_nothing_else_is(world: World) -> None:
    owner = await world.owner()
    reader = await world.member(owner, "reader")
    own = world.watch(owner.client, f"account/{owner.client.account}")
    theirs = world.watch(reader, f"account/{reader.account}")
    agent = world.watch(owner.client, f"agents/{owner.agent}")
    for watch in (own, theirs, agent):
        await watch.wait(lambda e: type(e).__name__ == "WsSubscribed", what="the subscription")
    await save(owner.client, owner.agent)
    await owner.client.call("ListAgentTools", agentId=owner.agent)
    with refused(409, 'A tool named "double" already exists'):
        await save(owner.client, owner.agent)
    await owner.client.call("DeleteAgentTool", agentId=owner.agent, name="nothing")
    await save(owner.client, owner.agent, "double", name="twice")
    await owner.client.call("DeleteAgentTool", agentId=owner.agent, name="twice")
    await owner.client.call("SetAgentPublicRead", agentId=owner.agent, publicRead=True)
    for watch in (own, theirs, agent):
        await until(lambda w=watch: "agent-collaborators-changed" in w.hints(), what="the last hint")
        assert [reason for reason in watch.hints() if reason != "agent-collaborators-changed"] == [
            "agent-tools-changed"
        ] * 3


async def test_of_savings_at_once_one_makes_the_tool(world: World) -> None:
    owner = await world.owner()
    sources = [f"export default () => {n}" for n in range(8)]
    clients = [owner.client, world.at(owner.client, 1)]
    results = await asyncio.gather(
        *(save(clients[n % 2], owner.agent, source=source) for n, source in enumerate(sources)), return_exceptions=True
    )
    (made,) = [r for r in results if isinstance(r, AgentToolInfo)]
    errors = [r for r in results if isinstance(r, ApiError)]
    assert {(e.status, e.message) for e in errors} == {(409, 'A tool named "double" already exists')}
    assert len(errors) == 7 and await authored(owner.client, owner.agent) == {"double": made}


async def test_of_renames_at_once_one_gets_the_name(world: World) -> None:
    owner = await world.owner()
    names = [f"tool{n}" for n in range(6)]
    await asyncio.gather(*(save(owner.client, owner.agent, name=name) for name in names))
    results = await asyncio.gather(
        *(save(owner.client, owner.agent, name, name="best") for name in names), return_exceptions=True
    )
    assert sum(isinstance(r, AgentToolInfo) for r in results) == 1
    left = await authored(owner.client, owner.agent)
    assert len(left) == 6 and "best" in left
    (winner,) = [name for name, r in zip(names, results, strict=True) if isinstance(r, AgentToolInfo)]
    assert winner not in left


async def test_replacing_and_deleting_at_once_leaves_one_of_both(world: World) -> None:
    owner = await world.owner()
    await save(owner.client, owner.agent)
    replaced, deleted = await asyncio.gather(
        save(owner.client, owner.agent, "double", description="New."),
        owner.client.call("DeleteAgentTool", agentId=owner.agent, name="double"),
        return_exceptions=True,
    )
    assert not isinstance(deleted, BaseException) and deleted.deleted
    assert isinstance(replaced, AgentToolInfo) or (isinstance(replaced, ApiError) and replaced.status == 404)
    assert await authored(owner.client, owner.agent) == {}


async def test_values_of_any_kind_come_back_as_they_are(world: World) -> None:
    owner = await world.owner()
    schema = {
        "type": "object",
        "description": "\0\N{GRINNING FACE}",
        "properties": {"a b.[0]": {"enum": [1, 1.5, -(2**63), None, True, "ü", {"k": [b"\x00\xff"]}]}},
        "additionalProperties": {"type": ["string", "null"]},
        "minLength": 2**53,
    }
    made = await save(owner.client, owner.agent, input=schema, source="a\0b", description="NUL \0 too")
    assert (made.input, made.source, made.summary) == (schema, "a\0b", "NUL \0 too")
    assert await authored(owner.client, owner.agent) == {"double": made}


async def test_a_saving_sent_twice_is_done_once(world: World) -> None:
    owner = await world.owner()
    watch = world.watch(owner.client, f"account/{owner.client.account}")
    await watch.wait(lambda e: type(e).__name__ == "WsSubscribed", what="the subscription")
    signer = owner.client.signer
    envelope = signer.sign({"_": "SaveAgentTool", "agentId": owner.agent, "tool": TOOL}, signer.key.principal)
    first, again = [await owner.client.send_envelope(envelope, mutating=True) for _ in range(2)]
    assert first == again
    assert watch.hints().count("agent-tools-changed") == 1


async def test_tools_go_with_the_agent(world: World) -> None:
    owner = await world.owner()
    await save(owner.client, owner.agent)
    await owner.client.call("DeleteAgent", agentId=owner.agent)
    with refused(404, "Agent not found"):
        await authored(owner.client, owner.agent)
    with refused(404, "Agent not found"):
        await save(owner.client, owner.agent)


async def test_another_accounts_key_sees_nothing(world: World) -> None:
    owner = await world.owner()
    await save(owner.client, owner.agent)
    foreign = world.client(key=Key.generate(), account=owner.client.account)
    with refused(401, "Signer is not authorized for account"):
        await authored(foreign, owner.agent)
