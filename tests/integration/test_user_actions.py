"""InvokeSessionTool: people use an agent's verbs in a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from libs.client import Client, ClientError
from libs.protocol.ws import WsSessionAppend, WsSessionChange
from libs.stack import Stack
from libs.stack.scripted import Say
from tests.integration.conftest import ENVIRONMENT
from tests.integration.test_failures import crash
from tests.integration.test_replay import Thief
from tests.support.cast import said_by_users
from tests.support.kit import NOWHERE, Owner, World, refused, until

LIVE = "The agent is working in this thread right now; wait for its turn to finish"
RUNNING = "A user tool action is still running in this thread; wait for it to finish"


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack to break, which downloads from here."""
    env = {
        **ENVIRONMENT,
        "SEED_AGENTS_ALLOW_PRIVATE_DOWNLOADS": "true",
        "SEED_AGENTS_USER_ACTION_LEASE_MS": "4000",
    }
    with Stack(tmp_path_factory.mktemp("actions") / "data", 0, edges=2, workers=1, env=env) as running:
        yield running


@pytest.fixture
async def world(frail: Stack) -> AsyncIterator[World]:
    async with World(frail.urls) as made:
        yield made


class Slow:
    """A file that is there once it is let go."""

    def __init__(self) -> None:
        self.gate, self.asked = asyncio.Event(), 0
        self.url = ""

    async def _answer(self, _: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        await self.gate.wait()
        return web.Response(text="a slow file", content_type="text/plain")

    async def __aenter__(self) -> Slow:
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/slow.txt"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        await self._runner.cleanup()


async def invoke(client: Client, session: str, verb: Any = "read", **given: Any) -> Any:
    return await client.call("InvokeSessionTool", sessionId=session, verb=verb, input=given)


def download(client: Client, session: str, slow: Slow) -> asyncio.Task[Any]:
    return asyncio.create_task(
        invoke(client, session, "write", address="~/memory/slow.txt", options={"fromUrl": slow.url})
    )


async def log(owner: Owner, session: str) -> list[Any]:
    return [event.event for event in await owner.events(session)]


async def test_an_action_is_in_the_log_in_the_answer_and_in_the_next_prompt(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    watch = world.watch(world.at(owner.client, 1), f"sessions/{session}")
    account = world.watch(owner.client, f"account/{owner.client.account}")
    await watch.kind(WsSessionChange)
    wrote = await invoke(owner.client, session, "write", address="~/memory/a.md", content="one <b>")
    read = await invoke(owner.client, session, "read", address="~/memory/a.md")
    missing = await invoke(owner.client, session, "read", address="~/memory/none")
    assert (wrote.session_id, wrote.output["path"], read.output["content"]) == (session, "a.md", "one <b>")
    assert missing.error == "Memory file not found: none"
    events = await owner.events(session)
    payloads = [event.event for event in events]
    assert [(p["type"], p["name"], p["actor"]) for p in payloads] == [
        ("tool_call", "write", "user"), ("tool_result", "write", "user"),
        ("tool_call", "read", "user"), ("tool_result", "read", "user"),
        ("tool_call", "read", "user"), ("tool_result", "read", "user"),
    ]  # fmt: skip
    assert payloads[0]["id"].startswith("user-") and payloads[1]["toolCallId"] == payloads[0]["id"]
    assert [wrote.result_event_id, read.result_event_id, missing.result_event_id] == [e.id for e in events[1::2]]
    assert payloads[3]["output"] == read.output and payloads[5]["error"] == missing.error
    await watch.wait(lambda e: isinstance(e, WsSessionAppend) and e.event.seq == 6)
    assert watch.seqs() == [1, 2, 3, 4, 5, 6]
    assert await owner.status(session) == "idle" and await owner.runs(session) == []
    await until(lambda: account.hints().count("session-event") == 6, what="the hints")
    assert "agent-memory-changed" in account.hints()

    await owner.client.message(session, "what did I do?")
    said = said_by_users(owner.provider.requests[0])
    assert said[0].startswith('<user_action verb="write">\n{') and "one \\u003cb>" in said[0]
    assert said[1].startswith('<user_action_result verb="write">\n{')
    assert said[5] == '<user_action_result verb="read">\n"Memory file not found: none"\n</user_action_result>'
    assert said[6] == "what did I do?"


async def test_refusals_in_their_order(world: World) -> None:
    owner = await world.owner(Say(("half", " whole"), gate=(gate := asyncio.Event())))
    session = await owner.session()
    reader = await world.member(owner, "reader")
    for verb in ("delegate", "", 5, "Read"):
        with refused(400, "verb must be read, write, or call"):
            await invoke(world.client(), NOWHERE, verb)
    for client, target in ((owner.client, NOWHERE), (world.client(), session), (owner.client, "a\0b")):
        with refused(404, "Session not found"):
            await invoke(client, target, address="~/memory/")
    with refused(400, "Session ID is required"):
        await invoke(owner.client, "", address="~/memory/")
    with refused(403, "Write access is required"):
        await invoke(reader, session, address="~/memory/")
    watch = world.watch(owner.client, f"sessions/{session}")
    asking = asyncio.create_task(owner.client.message(session, "go"))
    await watch.streamed("half")
    with refused(409, LIVE):
        await invoke(owner.client, session, address="~/memory/")
    gate.set()
    await asking
    assert len(await log(owner, session)) == 2
    writer = await world.member(owner, "writer")
    assert (await invoke(writer, session, address="~/memory/")).output["entries"] == []


async def test_input_that_is_no_object_counts_as_empty(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    call = owner.client.call
    for given in ({}, {"input": None}, {"input": [1]}, {"input": "x"}):
        answer = await call("InvokeSessionTool", sessionId=session, verb="read", **given)
        assert answer.error == "read requires an address"
    assert [p["input"] for p in await log(owner, session) if p["type"] == "tool_call"] == [{}] * 4
    listing = await call("InvokeSessionTool", sessionId=session, verb="call")
    assert listing.output["summary"].startswith("call requires a tool name.")
    delegated = await invoke(owner.client, session, "call", tool="delegate", input={"brief": "x"})
    assert delegated.error == "Delegation is a conversational ask; message the agent instead"


async def test_images_are_not_shown_to_people(world: World) -> None:
    owner = await world.owner(model="gpt-4o")
    session = await owner.session()
    image = await owner.client.call(
        "UploadSessionAttachment", sessionId=session, name="a.png", mimeType="image/png", content=b"\x89PNG"
    )
    seen = await invoke(owner.client, session, address=f"attachment:{image.attachment.id}")
    assert seen.output["shownAsImage"] is False and "model alone" in seen.output["summary"]


async def test_messages_wait_for_actions_and_several_actions_run(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    async with Slow() as slow:
        acting = [download(owner.client, session, slow) for _ in range(2)]
        await until(lambda: slow.asked == 2, what="two downloads")
        assert (await invoke(owner.client, session, address="~/self")).output["name"] == "Scripted agent"
        with refused(409, RUNNING):
            await owner.client.message(session, "hi")
        # Longer than a lease: it is renewed.
        await asyncio.wait(acting, timeout=6.0)
        assert not any(task.done() for task in acting)
        with refused(409, RUNNING):
            await owner.client.message(session, "hi")
        slow.gate.set()
        for done in await asyncio.gather(*acting):
            assert done.output["path"] == "slow.txt" and done.output["finalUrl"] == slow.url
    await owner.client.message(session, "hi")
    assert [role for role, _ in await owner.said(session)] == ["user", "assistant"]


async def test_a_client_that_leaves_does_not_interrupt_its_action(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    async with Slow() as slow:
        acting = download(owner.client, session, slow)
        await until(lambda: slow.asked == 1, what="the download")
        acting.cancel()
        await asyncio.wait([acting])
        slow.gate.set()
        await until(lambda: _results(owner, session, 1), what="the result")
    [result] = [p for p in await log(owner, session) if p["type"] == "tool_result"]
    assert result["output"]["path"] == "slow.txt"


async def _results(owner: Owner, session: str, count: int) -> bool:
    return sum(p["type"] == "tool_result" for p in await log(owner, session)) == count


async def test_a_replayed_envelope_acts_once(world: World, frail: Stack) -> None:
    owner = await world.owner()
    session, client = await owner.session(), owner.client
    async with aiohttp.ClientSession() as http:
        thief = Thief(frail, http)
        action = {"_": "InvokeSessionTool", "sessionId": session, "verb": "write"}
        envelope = client.signer.sign(
            {**action, "input": {"address": "~/memory/a", "content": "second"}}, client.signer.key.principal
        )
        status, first = await thief.post(0, envelope)
        assert status == 200
        await invoke(client, session, "write", address="~/memory/a", content="third")
        await thief.forget()
        assert await thief.post(1, envelope) == (200, first)
    kept = (await client.call("ReadAgentMemoryFile", agentId=owner.agent, path="a")).file
    assert kept.content == "third"
    assert sum(p["type"] == "tool_call" for p in await log(owner, session)) == 2


async def test_the_death_of_the_api_in_mid_action_frees_the_session(world: World, frail: Stack) -> None:
    owner = await world.owner()
    session = await owner.session()
    async with Slow() as slow:
        acting = download(owner.client, session, slow)
        await until(lambda: slow.asked == 1, what="the download")
        await crash(frail.process("runs"))
        with pytest.raises(ClientError):
            await acting
        await until(lambda: _results(owner, session, 1), within_s=30, what="the sweep")
    [result] = [p for p in await log(owner, session) if p["type"] == "tool_result"]
    assert result["actor"] == "user" and "interrupted" in result["error"]
    await until(lambda: _answers(owner, session), within_s=30, what="an answer")
    assert json.dumps(await log(owner, session)).count('"tool_result"') == 1


async def _answers(owner: Owner, session: str) -> bool:
    try:
        await owner.client.message(session, "are you there?")
    except ClientError:
        return False
    return True
