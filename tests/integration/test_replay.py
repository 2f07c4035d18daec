"""A captured envelope acts once, also when everything the edges remember is lost."""

from __future__ import annotations

import hashlib
from typing import Any

import aiohttp
import asyncpg
import pytest
import redis.asyncio

from libs.client import Client
from libs.stack import Stack
from libs.wire import decode
from tests.support.kit import Owner, World, refused, text, until

ACCEPTED = {"_": "Error", "message": "This signed request has already been accepted"}


class Thief:
    """Sends captured bytes again, to the other edge, after all that Valkey knew is gone."""

    def __init__(self, stack: Stack, http: aiohttp.ClientSession) -> None:
        self._stack, self._http = stack, http

    async def post(self, edge: int, envelope: bytes) -> tuple[int, Any]:
        headers = {"Content-Type": "application/cbor"}
        async with self._http.post(self._stack.urls[edge] + "/api/message", data=envelope, headers=headers) as answer:
            return answer.status, decode(await answer.read())

    async def twice(self, client: Client, action: dict[str, Any]) -> tuple[Any, tuple[int, Any]]:
        """The answer to the first, which must succeed, and what the second got."""
        envelope = client.signer.sign(action, client.signer.key.principal)
        status, first = await self.post(0, envelope)
        assert status == 200, first
        await self.forget()
        return first, await self.post(1, envelope)

    async def forget(self) -> None:
        """Let Valkey lose everything."""
        valkey = redis.asyncio.Redis.from_url(self._stack.stores.redis_url)
        await valkey.flushall()
        await valkey.aclose()


@pytest.fixture
async def thief(stack: Stack) -> Any:
    async with aiohttp.ClientSession() as http:
        yield Thief(stack, http)


async def act(thief: Thief, owner: Owner, action: str, /, **fields: Any) -> tuple[Any, tuple[int, Any]]:
    return await thief.twice(owner.client, {"_": action, **fields})


async def test_creations(world: World, thief: Thief) -> None:
    owner = await world.owner()
    first, second = await act(thief, owner, "CreateSession", agentId=owner.agent)
    assert second == (200, first), "the owner still knows its answer"
    sessions = (await owner.client.call("ListSessions", agentId=owner.agent)).sessions
    assert len(sessions) == 1
    first, second = await act(thief, owner, "CreateSession", agentId=owner.agent, clientRequestId="r")
    assert second == (200, first), "a client's id gives the answer of the first"
    assert len((await owner.client.call("ListSessions", agentId=owner.agent)).sessions) == 2


async def test_a_value_that_was_replaced_since_stays(world: World, thief: Thief) -> None:
    owner = await world.owner()
    session = await owner.session()
    client = owner.client
    envelope = client.signer.sign(
        {"_": "UpdateSession", "sessionId": session, "title": "old"}, client.signer.key.principal
    )
    status, old = await thief.post(0, envelope)
    assert status == 200
    first, second = await act(thief, owner, "UpdateSession", sessionId=session, title="new")
    assert second == (200, first)
    assert await thief.post(1, envelope) == (200, old), "what it was answered then"
    assert (await client.session(session)).session.title == "new"


async def test_what_is_gone_was_deleted_once(world: World, thief: Thief) -> None:
    owner = await world.owner()
    session = await owner.session()
    first, second = await act(thief, owner, "DeleteSession", sessionId=session)
    assert second == (200, first)
    with refused(404, "Session not found"):
        await owner.client.call("DeleteSession", sessionId=session)


async def test_an_answer_that_is_not_kept_is_refused(world: World, thief: Thief, stack: Stack) -> None:
    """As after the owner died between its effect and keeping its answer, or for an answer that is too large."""
    owner = await world.owner()
    envelope = owner.client.signer.sign(
        {"_": "CreateSession", "agentId": owner.agent}, owner.client.signer.key.principal
    )
    assert (await thief.post(0, envelope))[0] == 200
    database = await asyncpg.connect(stack.stores.database_url)

    async def forgotten() -> bool:
        digest = hashlib.sha256(decode(envelope)["sig"]).digest()
        done = await database.execute(
            "update sessions.accepted_signatures set answer = null where signature_hash = $1 and answer is not null",
            digest,
        )
        return done == "UPDATE 1"

    await until(forgotten, what="the answer was kept")
    await database.close()
    await thief.forget()
    assert await thief.post(1, envelope) == (409, ACCEPTED)
    assert len((await owner.client.call("ListSessions", agentId=owner.agent)).sessions) == 1


async def test_who_lost_the_right_gets_no_stored_answer(world: World, thief: Thief) -> None:
    owner = await world.owner()
    writer = await world.member(owner, "writer")
    envelope = writer.signer.sign({"_": "CreateSession", "agentId": owner.agent}, writer.signer.key.principal)
    assert (await thief.post(0, envelope))[0] == 200
    await owner.client.call("SetAgentPublicRead", agentId=owner.agent, publicRead=True)
    await owner.client.call("RemoveAgentCollaborator", agentId=owner.agent, accountId=writer.account)
    await thief.forget()
    assert (await thief.post(1, envelope))[0] == 403


async def test_memory(world: World, thief: Thief) -> None:
    owner = await world.owner()
    written = {"_": "WriteAgentMemoryFile", "agentId": owner.agent, "path": "a", "content": "old"}
    envelope = owner.client.signer.sign(written, owner.client.signer.key.principal)
    status, old = await thief.post(0, envelope)
    assert status == 200
    first, second = await act(thief, owner, "WriteAgentMemoryFile", agentId=owner.agent, path="a", content="new")
    assert second == (200, first)
    assert await thief.post(1, envelope) == (200, old), "what it was answered then"
    assert (await owner.client.call("ReadAgentMemoryFile", agentId=owner.agent, path="a")).file.content == "new"
    target = {"kind": "memory", "agentId": owner.agent, "path": "b"}
    first, second = await act(thief, owner, "BeginFileUpload", target=target, size=2)
    assert second == (200, first)
    upload = first["uploadId"]
    first, second = await act(thief, owner, "AppendFileUploadChunk", uploadId=upload, offset=0, content=b"xy")
    assert second == (200, first)
    first, second = await act(thief, owner, "CommitFileUpload", uploadId=upload)
    assert second == (200, first)
    first, second = await act(thief, owner, "DeleteAgentMemoryFile", agentId=owner.agent, path="b")
    assert (first["deleted"], second) == (True, (200, first))


async def test_secrets(world: World, thief: Thief) -> None:
    owner = await world.owner()
    for name, fields in (
        ("SetSecret", {"name": "n", "value": b"v"}),
        ("DeleteModelProvider", {"name": "scripted"}),
        ("ImportSigningIdentity", {"seed": b"7" * 32}),
    ):
        first, second = await act(thief, owner, name, **fields)
        assert second == (200, first), name


async def test_messages_and_runs(world: World, thief: Thief) -> None:
    owner = await world.owner()
    session = await owner.session()
    first, second = await act(thief, owner, "MessageSession", sessionId=session, content=text("hi"))
    assert second == (200, first)
    assert await owner.said(session) == [("user", "hi"), ("assistant", "Hello.")]
    assert len(await owner.runs(session)) == 1
    first, second = await act(thief, owner, "StopSession", sessionId=session)
    assert second == (200, first)


async def test_tools(world: World, thief: Thief) -> None:
    owner = await world.owner()
    tool = {"name": "double", "description": "Doubles.", "input": {}, "source": "export default () => 1"}
    first, second = await act(thief, owner, "SaveAgentTool", agentId=owner.agent, tool=tool)
    assert second == (200, first), "and not that the name is taken"
    first, second = await act(
        thief, owner, "SaveAgentTool", agentId=owner.agent, tool={**tool, "name": "twice"}, previousName="double"
    )
    assert second == (200, first), "and not that there is no such tool"
    first, second = await act(thief, owner, "DeleteAgentTool", agentId=owner.agent, name="twice")
    assert second == (200, first) and first["deleted"] is True
