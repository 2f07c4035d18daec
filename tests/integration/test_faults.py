"""Faults of another implementation that this one must not have, and rights as members meet them, over the edge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from libs.client import ApiError, Key
from libs.protocol.actions import UpdateAgent
from libs.protocol.secrets import ModelProviderConfig
from libs.protocol.ws import WsSessionChange, WsSubscribed
from libs.stack.scripted import Fail, Say
from tests.support.kit import World, refused, text


@asynccontextmanager
async def slow_models(release: asyncio.Event, asked: asyncio.Event) -> AsyncIterator[str]:
    """A provider whose list of models comes when it is let go."""

    async def models(_: web.BaseRequest) -> web.Response:
        asked.set()
        await release.wait()
        return web.json_response({"data": [{"id": "slow-1"}]})

    runner = web.ServerRunner(web.Server(models), shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        release.set()
        await runner.cleanup()


async def test_a_slow_outside_server_costs_nobody_a_write(world: World) -> None:
    release, asked = asyncio.Event(), asyncio.Event()
    waiting, other = world.client(), await world.owner(Say(("Answered",)))
    async with slow_models(release, asked) as url:
        await waiting.set_provider("slow", ModelProviderConfig(type="custom", base_url=url))
        listing = asyncio.create_task(waiting.call("ListProviderModels", provider="slow"))
        await asked.wait()
        session = await other.session("kept")
        await other.client.message(session, "hello")
        await other.client.set_secret("kept", b"a value that stays")
        second = await other.client.create_agent(other.definition(name="Second"))
        await waiting.set_secret("own", b"a value that stays, too")
        release.set()
        assert [model.id for model in (await listing).models] == ["slow-1"]
    there = world.at(other.client, 1)
    assert (await there.session(session)).session.title == "kept"
    assert await other.said(session) == [("user", "hello"), ("assistant", "Answered")]
    assert {agent.id for agent in (await there.call("ListAgents")).agents} == {other.agent, second}
    again = await there.send({"_": "SetSecret", "name": "kept", "value": b"another value"})
    assert again["secret"]["createdAt"] < again["secret"]["updatedAt"], "the first one was there"


async def test_one_client_message_id_at_once_is_one_message_and_no_fault(world: World) -> None:
    owner = await world.owner("Once.")
    session = await owner.session()
    clients = [world.at(owner.client, edge) for edge in (0, 1, 0, 1)]
    answers = await asyncio.gather(*(client.message(session, "same", "m-1") for client in clients))
    assert len({answer.assistant_event_id for answer in answers}) == 1
    assert await owner.said(session) == [("user", "same"), ("assistant", "Once.")]


async def test_a_failed_turn_tried_again_repeats_no_message(world: World) -> None:
    owner = await world.owner("Better now.")
    owner.provider.script.append(Fail(400, "not now"))
    session = await owner.session()
    for edge in (0, 1):
        client = world.at(owner.client, edge)
        try:
            await client.message(session, "question", "m-1")
        except ApiError as e:
            assert (edge, e.status) == (0, 502)
    assert await owner.said(session) == [("user", "question"), ("assistant", "Better now.")]


async def test_an_imported_key_is_never_answered_for_another(world: World) -> None:
    client = world.client()
    seeds = [Key.generate() for _ in range(2)]
    first = await client.call("ImportSigningIdentity", seed=seeds[0].seed, clientRequestId="r-1")
    again = await client.call("ImportSigningIdentity", seed=seeds[0].seed, clientRequestId="r-1")
    assert first.identity.account_id == again.identity.account_id == seeds[0].id
    with refused(409, "Client request ID payload mismatch"):
        await world.at(client, 1).call("ImportSigningIdentity", seed=seeds[1].seed, clientRequestId="r-1")
    listed = (await client.call("ListSigningIdentities")).identities
    assert [identity.account_id for identity in listed] == [seeds[0].id]


async def test_a_removal_cuts_what_is_live_within_a_second(world: World) -> None:
    gate = asyncio.Event()
    owner = await world.owner(Say(("among", " ourselves"), gate=gate))
    session = await owner.session()
    reader = await world.member(owner, "reader")
    watches = [world.watch(world.at(reader, edge), f"sessions/{session}") for edge in (0, 1)]
    agent = world.watch(reader, f"agents/{owner.agent}")
    await asyncio.gather(*(watch.kind(WsSessionChange) for watch in watches), agent.kind(WsSubscribed))
    await owner.client.call("RemoveAgentCollaborator", agentId=owner.agent, accountId=reader.account)
    removed = time.monotonic()
    with refused(404, "Session not found"):
        await reader.session(session)
    await asyncio.sleep(max(0.0, removed + 1.0 - time.monotonic()))  # the promise is about time
    before = [len(watch.events) for watch in (*watches, agent)]
    speaking = asyncio.create_task(owner.client.message(session, "hello"))
    mine = world.watch(owner.client, f"sessions/{session}")
    await mine.streamed("among")
    gate.set()
    await speaking
    await owner.client.call("SetAgentPublicChat", agentId=owner.agent, publicChat=False)
    await mine.message("among ourselves")
    assert [len(watch.events) for watch in (*watches, agent)] == before


async def test_the_roster_is_in_the_prompt_of_a_shared_agent_alone(world: World) -> None:
    owner = await world.owner("Hello.")
    session = await owner.session()
    await owner.client.message(session, "alone")
    writer = await world.member(owner, "writer")
    await writer.send({"_": "MessageSession", "sessionId": session, "content": text("together")})
    await owner.client.call("RemoveAgentCollaborator", agentId=owner.agent, accountId=writer.account)
    await owner.client.message(session, "alone again")
    prompts = [request["messages"][0]["content"] for request in owner.provider.requests]
    assert [writer.account in prompt for prompt in prompts] == [False, True, False]
    assert owner.client.account in prompts[1]


async def test_members_list_the_providers_and_identities_of_the_agent(world: World) -> None:
    owner, stranger = await world.owner(), world.client()
    key = Key.generate()
    name = (await owner.client.call("ImportSigningIdentity", seed=key.seed, label="Bot")).identity.name
    await owner.client.call("ImportSigningIdentity", seed=Key.generate().seed, label="Not granted")
    await owner.client.call(UpdateAgent(agent_id=owner.agent, definition=owner.definition(signing_keys=[name])))
    reader = await world.member(owner, "reader")
    providers = (await reader.call("ListModelProviders", agentId=owner.agent)).providers
    assert [(p.name, p.has_secrets) for p in providers] == [("scripted", True)]
    identities = (await reader.call("ListSigningIdentities", agentId=owner.agent)).identities
    assert [identity.account_id for identity in identities] == [key.id]
    for action in ("ListModelProviders", "ListSigningIdentities"):
        with refused(404, "Agent not found"):
            await stranger.call(action, agentId=owner.agent)
    await owner.client.call("RemoveAgentCollaborator", agentId=owner.agent, accountId=reader.account)
    with refused(404, "Agent not found"):
        await reader.call("ListSigningIdentities", agentId=owner.agent)
