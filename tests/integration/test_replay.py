"""A captured envelope acts once, also when everything the edges remember is lost."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
import redis.asyncio

from libs.client import Client
from libs.stack import Stack
from libs.wire import decode
from tests.support.kit import Owner, World, text

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
        valkey = redis.asyncio.Redis.from_url(self._stack.stores.redis_url)
        await valkey.flushall()
        await valkey.aclose()
        return first, await self.post(1, envelope)


@pytest.fixture
async def thief(stack: Stack) -> Any:
    async with aiohttp.ClientSession() as http:
        yield Thief(stack, http)


async def act(thief: Thief, owner: Owner, action: str, /, **fields: Any) -> tuple[Any, tuple[int, Any]]:
    return await thief.twice(owner.client, {"_": action, **fields})


async def test_creations(world: World, thief: Thief) -> None:
    owner = await world.owner()
    _, second = await act(thief, owner, "CreateSession", agentId=owner.agent)
    assert second == (409, ACCEPTED)
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
    assert (await thief.post(0, envelope))[0] == 200
    _, second = await act(thief, owner, "UpdateSession", sessionId=session, title="new")
    assert second == (409, ACCEPTED)
    assert await thief.post(1, envelope) == (409, ACCEPTED)
    assert (await client.session(session)).session.title == "new"


async def test_secrets(world: World, thief: Thief) -> None:
    owner = await world.owner()
    for name, fields in (
        ("SetSecret", {"name": "n", "value": b"v"}),
        ("DeleteModelProvider", {"name": "scripted"}),
        ("ImportSigningIdentity", {"seed": b"7" * 32}),
    ):
        _, second = await act(thief, owner, name, **fields)
        assert second[0] == 409, name


async def test_messages_and_runs(world: World, thief: Thief) -> None:
    owner = await world.owner()
    session = await owner.session()
    first, second = await act(thief, owner, "MessageSession", sessionId=session, content=text("hi"))
    assert second == (200, first)
    assert await owner.said(session) == [("user", "hi"), ("assistant", "Hello.")]
    assert len(await owner.runs(session)) == 1
    _, second = await act(thief, owner, "StopSession", sessionId=session)
    assert second == (409, ACCEPTED)
