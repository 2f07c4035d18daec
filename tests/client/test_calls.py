"""Calls: timestamps, typed answers and errors, and what is sent again."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web

from libs.client import ApiError, Client, ConnectionLost, Key, Signer, UnexpectedAnswer
from libs.protocol.actions import CreateSession, ListAgents
from libs.protocol.responses import ListAgentsResponse
from libs.wire import Envelope
from tests.client.fakes import FakeServer, answer


async def test_every_request_of_a_key_has_a_timestamp_of_its_own() -> None:
    async with FakeServer() as server, Client(server.url, Key.generate()) as one:
        async with one.at(server.url) as other:
            await asyncio.gather(*(client.call(ListAgents()) for client in (one, other) * 20))
        stamps = [e.ts for e in server.envelopes]
        assert len(set(stamps)) == len(stamps) == 40
        assert {e.account for e in server.envelopes} == {one.account}
        assert {e.protocol for e in server.envelopes} == {3}


async def test_an_answer_is_typed_and_a_refusal_is_an_error_with_its_fields() -> None:
    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        assert await client.call(ListAgents()) == ListAgentsResponse(agents=[])
        assert await client.call("ListAgents") == ListAgentsResponse(agents=[])
        server.on_message = lambda _: answer(426, _="Error", message="Please update", code="protocol_too_old")
        with pytest.raises(ApiError) as refused:
            await client.call("ListAgents")
        assert (refused.value.status, refused.value.message, refused.value.code) == (
            426,
            "Please update",
            "protocol_too_old",
        )
        server.on_message = lambda _: answer(_="GetRunResponse")
        with pytest.raises(UnexpectedAnswer):
            await client.call(ListAgents())
        server.on_message = lambda _: web.Response(body=b"\xff")
        with pytest.raises(UnexpectedAnswer):
            await client.call(ListAgents())
        server.on_message = lambda _: web.Response(status=413, text="too much")
        with pytest.raises(ApiError, match="413 too much"):
            await client.call(ListAgents())


async def test_a_delegate_acts_for_the_account_that_authorized_it() -> None:
    owner = Key.generate()
    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        async with client.acting_for(owner.id) as delegate:
            await delegate.call(ListAgents())
        assert (server.envelopes[0].account, server.envelopes[0].signer) == (owner.id, client.signer.key.id)


async def test_a_creation_gets_a_client_id_and_a_given_one_is_kept() -> None:
    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_message = lambda _: answer(_="CreateSessionResponse", sessionId="s")
        await client.create_session("a")
        await client.create_session("a")
        await client.call(CreateSession(agent_id="a", client_request_id="mine"))
        await client.call("CreateSession", agentId="a")
        ids = [e.action.get("clientRequestId") for e in server.envelopes]
        assert ids[0] and ids[1] and ids[0] != ids[1]
        assert ids[2:] == ["mine", None]


async def test_a_broken_mutation_goes_out_again_as_the_same_bytes_and_its_flight_is_waited_out() -> None:
    """The connection breaks, the first is in flight for a while, then the stored answer comes."""

    def on_message(envelope: Envelope) -> web.StreamResponse:
        count = len(server.envelopes)
        if count == 1:
            return Broken()
        if count == 2:
            return answer(409, retry_after=0, _="Error", message="This request is still being handled")
        return answer(_="CreateSessionResponse", sessionId="s")

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_message = on_message
        assert await client.create_session("a") == "s"
        assert len({e.sig for e in server.envelopes}) == 1
        assert len(server.envelopes) == 3


async def test_a_conflict_of_the_first_sending_is_an_answer() -> None:
    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_message = lambda _: answer(409, _="Error", message="Session is already streaming")
        with pytest.raises(ApiError, match="409"):
            await client.call("RetrySession", sessionId="s")
        assert len(server.envelopes) == 1


@pytest.mark.parametrize(("action", "status"), [("ListAgents", 503), ("SetSecret", 503)])
async def test_a_part_that_is_away_for_the_moment_is_asked_again(action: str, status: int) -> None:
    async with FakeServer() as server, Client(server.url, Key.generate()) as client:

        def on_message(_: Envelope) -> web.Response:
            if len(server.envelopes) == 1:
                return answer(status, retry_after=0, _="Error", message="later")
            return answer(_="done")

        server.on_message = on_message
        assert await client.send({"_": action}) == {"_": "done"}
        assert len(server.envelopes) == 2


async def test_the_failure_of_a_turn_is_not_repeated() -> None:
    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_message = lambda _: answer(502, _="Error", message="the provider's message")
        with pytest.raises(ApiError, match="502 the provider's message"):
            await client.message("s", "hi")
        assert len(server.envelopes) == 1


async def test_a_server_that_stays_away_is_given_up() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with Client(url, Signer(Key.generate()), away_s=0.2) as client:
            with pytest.raises(ConnectionLost, match="nothing answers"):
                await client.call(ListAgents())


async def test_a_silent_server_is_given_up_at_the_deadline() -> None:
    async def on_message(_: Envelope) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with FakeServer() as server, Client(server.url, Key.generate(), timeout_s=0.3) as client:
        server.on_message = on_message
        with pytest.raises(ConnectionLost, match="no answer in time"):
            await client.call(ListAgents())


class Broken(web.Response):
    """Breaks the connection off in place of an answer."""

    async def prepare(self, request: web.BaseRequest) -> None:
        assert request.transport is not None
        request.transport.abort()
