"""The HTTP surface of the edge over a real listener."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from seed.sessions.v1 import types_pb2

from libs import wire
from libs.errors import Conflict, Forbidden
from tests.edge.conftest import Start, World, until

TEXT = [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize("path", ["/api/message", "/agents/api/message"])
async def test_preflight_and_headers(world: World, path: str) -> None:
    async with world.http.options(world.url + path) as r:
        assert r.status == 204 and await r.read() == b""
        assert r.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
        assert r.headers["x-agents-protocol"] == "3"
    async with world.http.post(world.url + path, data=b"\xff", headers={"content-type": "application/cbor"}) as r:
        assert r.status == 400 and wire.decode(await r.read()) == {"_": "Error", "message": "Invalid CBOR request"}
        assert r.headers["access-control-expose-headers"] == "X-Agents-Protocol"
        assert r.headers["content-type"] == "application/cbor"


@pytest.mark.parametrize(
    "method, path",
    [("GET", "/"), ("HEAD", "/api/health"), ("PUT", "/api/message"), ("OPTIONS", "/x"), ("GET", "/api/health/")],
)
async def test_anything_else_is_404(world: World, method: str, path: str) -> None:
    async with world.http.request(method, world.url + path) as r:
        assert r.status == 404 and (method == "HEAD" or await r.text() == "Not Found")
        assert r.headers["x-agents-protocol"] == "3" and r.headers["content-type"].startswith("text/plain")


async def test_health_and_version(world: World) -> None:
    async with world.http.get(world.url + "/api/health") as r:
        health = await r.json()
    assert health["status"] == "ok" and health["codeExecReasonCode"] == "config-disabled" and health["uptime"] >= 0
    assert health["ipfsServerUrl"] == health["hmServerUrl"] == "https://hyper.media"
    async with world.http.get(world.url + "/agents/api/version") as r:
        version = await r.json()
    assert (version["protocol"], version["minClientProtocol"]) == (3, 1) and version["commit"] == "unknown"


async def test_an_action_reaches_its_owner_and_comes_back(world: World) -> None:
    key = wire.Key.generate()
    account = wire.account_id(key.principal)
    agent = world.sessions.add_agent(account, public_read=True)
    status, answer = await world.act(key, "ListAgents")
    assert status == 200
    (shown,) = answer["agents"]
    assert shown["id"] == agent.id and shown["definition"]["name"] == "A" and shown["publicRead"] is True
    assert "accessRole" not in shown and shown["stateDir"].endswith(agent.id)
    name, _, caller = world.sessions.seen[-1]
    assert (name, caller.account, caller.signer, caller.service) == ("ListAgents", account, account, "edge")


async def test_fields_are_read_leniently(world: World) -> None:
    key = wire.Key.generate()
    agent = world.sessions.add_agent(wire.account_id(key.principal))
    await world.act(key, "CreateSession", agentId=agent.id, title=5, clientRequestId=None)
    _, request, _ = world.sessions.seen[-1]
    assert request.HasField("title") and request.title == "" and request.HasField("client_request_id")
    await world.act(key, "CreateSession", agentId=agent.id)
    assert not world.sessions.seen[-1][1].HasField("title")
    await world.act(key, "SetSecret", name=["x"], value="text", metadata=None)
    _, request, _ = world.secrets.seen[-1]
    assert request.name == "" and not request.HasField("value") and wire.decode(request.metadata) is None


@pytest.mark.parametrize("value", [None, "true", 1])
async def test_public_read_must_be_a_boolean(world: World, value: Any) -> None:
    status, answer = await world.act(wire.Key.generate(), "SetAgentPublicRead", agentId="x", publicRead=value)
    assert (status, answer["message"]) == (400, "publicRead must be a boolean") and not world.sessions.seen


async def test_actions_that_have_no_handler(world: World) -> None:
    key = wire.Key.generate()
    for name, message in (
        ("Nope", "Unsupported action: Nope"),
        ("Subscribe", "Subscribe is only supported over WebSocket"),
        ("ListMcpServers", "This server does not serve ListMcpServers yet"),
    ):
        assert await world.act(key, name) == (400, {"_": "Error", "message": message})


async def test_errors_keep_status_message_code_and_retry_after(world: World) -> None:
    key = wire.Key.generate()
    world.sessions.fail = Forbidden("No", code="why")
    assert await world.act(key, "ListAgents") == (403, {"_": "Error", "message": "No", "code": "why"})
    world.sessions.fail = Conflict("Later", retry_after_s=1.2)
    status, _, headers = await world.post(wire.sign_envelope(key, {"_": "ListAgents"}))
    assert status == 409 and headers["retry-after"] == "2"
    world.sessions.fail = ValueError("secret detail")
    assert await world.act(key, "ListAgents") == (500, {"_": "Error", "message": "Internal server error"})


async def test_delegates(world: World) -> None:
    owner, delegate = wire.Key.generate(), wire.Key.generate()
    refused = (401, {"_": "Error", "message": "Signer is not authorized for account"})
    assert await world.act(delegate, "ListAgents", account=owner.principal) == refused
    world.secrets.authorized.add((wire.account_id(owner.principal), wire.account_id(delegate.principal)))
    assert (await world.act(delegate, "ListAgents", account=owner.principal))[0] == 200
    assert world.sessions.seen[-1][2].account == wire.account_id(owner.principal)


async def test_media_type_comes_first(world: World) -> None:
    status, answer, _ = await world.post(b"\xff", content_type="text/plain")
    assert (status, answer["message"]) == (415, "Content-Type must be application/cbor")
    status, _, _ = await world.post(b"\xff", content_type="Application/CBOR; charset=x")
    assert status == 400


async def test_large_bodies(start: Start) -> None:
    world = await start(body_limit_bytes=300_000, bodies_in_flight_bytes=400_000)
    refused = {"_": "Error", "message": "Request body is too large"}
    assert (await world.post(bytes(300_001)))[:2] == (413, refused)

    async def pieces() -> Any:
        for _ in range(20):
            yield bytes(20_000)

    async with world.http.post(
        world.url + "/api/message", data=pieces(), headers={"content-type": "application/cbor"}
    ) as r:
        assert (r.status, wire.decode(await r.read())) == (413, refused)
    key = wire.Key.generate()
    body = wire.sign_envelope(key, {"_": "ListAgents", "x": bytes(280_000)})
    assert (await world.post(body))[0] == 200, "verified in a thread"

    gate = asyncio.Event()

    async def held() -> Any:
        yield body[:250_000]
        await gate.wait()
        yield body[250_000:]

    def send() -> Any:
        headers = {"content-type": "application/cbor", "content-length": str(len(body))}
        return world.http.post(world.url + "/api/message", data=held(), headers=headers)

    async def first() -> int:
        async with send() as r:
            return r.status

    waiting = asyncio.create_task(first())
    routes = world.edge._routes
    await until(lambda: routes._bodies._held >= 250_000)
    status, answer, headers = await world.post(body)
    assert status == 503 and headers["retry-after"] == "1" and "busy" in answer["message"]
    gate.set()
    assert await waiting == 200 and routes._bodies._held == 0


async def test_a_client_that_asks_before_it_sends(world: World) -> None:
    body = wire.sign_envelope(wire.Key.generate(), {"_": "ListAgents"})
    reader, writer = await asyncio.open_connection("127.0.0.1", world.edge.port)
    head = f"POST /api/message HTTP/1.1\r\nHost: x\r\nContent-Type: application/cbor\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Expect: 100-continue\r\n\r\n")
    assert b" 100 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    writer.write(body)
    assert b" 200 " in await asyncio.wait_for(reader.readline(), 5)
    writer.close()


async def test_slow_bodies(start: Start) -> None:
    world = await start(body_timeout_ms=100)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.edge.port)
    writer.write(
        b"POST /api/message HTTP/1.1\r\nHost: x\r\nContent-Type: application/cbor\r\nContent-Length: 9\r\n\r\na"
    )
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 5)
    writer.close()


# The replay window


async def test_a_signature_acts_once(world: World) -> None:
    key = wire.Key.generate()
    agent = world.sessions.add_agent(wire.account_id(key.principal))
    body = wire.sign_envelope(key, {"_": "CreateSession", "agentId": agent.id})
    first = (await world.post(body))[:2]
    assert first[0] == 200 and (await world.post(body))[:2] == first
    assert world.sessions.calls["CreateSession"] == 1
    read = wire.sign_envelope(key, {"_": "ListAgents"})
    assert [(await world.post(read))[0] for _ in range(2)] == [200, 200] and world.sessions.calls["ListAgents"] == 2


async def test_refusals_are_remembered_but_not_our_own_failures(world: World) -> None:
    key = wire.Key.generate()
    agent = world.sessions.add_agent(wire.account_id(key.principal))
    body = wire.sign_envelope(key, {"_": "CreateSession", "agentId": agent.id})
    world.sessions.fail = ValueError()
    assert (await world.post(body))[0] == 500
    world.sessions.fail = Conflict("not now")
    assert (await world.post(body))[0] == 409
    world.sessions.fail = None
    assert (await world.post(body))[:2] == (409, {"_": "Error", "message": "not now"})


async def test_without_valkey_only_reads_go_on(start: Start) -> None:
    world = await start(redis_url="redis://127.0.0.1:1/0")
    key = wire.Key.generate()
    assert (await world.act(key, "ListAgents"))[0] == 200
    status, _, headers = await world.post(wire.sign_envelope(key, {"_": "SetSecret", "name": "n", "value": b"v"}))
    assert status == 503 and headers["retry-after"] == "1" and not world.secrets.seen


# Messages


def conversation(world: World) -> tuple[wire.Key, types_pb2.Session]:
    key = wire.Key.generate()
    return key, world.sessions.add_session(world.sessions.add_agent(wire.account_id(key.principal)))


async def test_a_message_waits_for_its_turn(world: World) -> None:
    key, session = conversation(world)
    world.runs.answer = types_pb2.TurnOutcome(status="succeeded", assistant_event_id="e1")
    status, answer = await world.act(key, "MessageSession", sessionId=session.id, content=TEXT)
    assert (status, answer) == (
        200,
        {"_": "MessageSessionResponse", "sessionId": session.id, "assistantEventId": "e1"},
    )
    assert len(world.sessions.seen[-1][1].signature_hash) == 32


async def test_lost_news_are_asked_for(world: World) -> None:
    key, session = conversation(world)
    world.runs.answer, world.runs.tell = types_pb2.TurnOutcome(status="succeeded", assistant_event_id="e2"), False
    _, answer = await world.act(key, "MessageSession", sessionId=session.id, content=TEXT)
    assert answer["assistantEventId"] == "e2" and world.runs.asked == 1


@pytest.mark.parametrize(
    "outcome, status, message",
    [
        (types_pb2.TurnOutcome(status="failed", error_status=502, error_message="boom"), 502, "boom"),
        (types_pb2.TurnOutcome(status="failed", error_status=401, error_message="sign in"), 401, "sign in"),
        (types_pb2.TurnOutcome(status="failed", error_status=400, error_message="no key"), 400, "no key"),
        (types_pb2.TurnOutcome(status="canceled", gone="Session"), 404, "Session not found"),
        (types_pb2.TurnOutcome(status="canceled"), 200, None),
        (types_pb2.TurnOutcome(status="waiting"), 200, None),
    ],
)
async def test_how_a_turn_ends(world: World, outcome: types_pb2.TurnOutcome, status: int, message: str | None) -> None:
    key, session = conversation(world)
    world.runs.answer = outcome
    got, answer = await world.act(key, "MessageSession", sessionId=session.id, content=TEXT)
    assert (got, answer.get("message")) == (status, message)


async def test_the_wait_has_an_end(start: Start) -> None:
    world = await start(message_wait_ms=50)
    key, session = conversation(world)
    _, answer = await world.act(key, "MessageSession", sessionId=session.id, content=TEXT)
    assert answer["assistantEventId"] == "" and len(world.runs.started) == 1


async def test_equal_bytes_in_flight(world: World) -> None:
    key, session = conversation(world)
    body = wire.sign_envelope(key, {"_": "MessageSession", "sessionId": session.id, "content": TEXT})
    waiting = asyncio.create_task(world.post(body))
    await until(lambda: world.runs.started)
    assert (await world.post(body))[0] == 409
    run_id, notify = world.runs.started[0]
    world.runs.settle(run_id, types_pb2.TurnOutcome(status="succeeded", assistant_event_id="e"), notify)
    first = (await waiting)[:2]
    assert first[0] == 200 and (await world.post(body))[:2] == first and len(world.runs.started) == 1


async def test_a_caller_that_leaves_does_not_end_its_request(world: World) -> None:
    key, session = conversation(world)
    body = wire.sign_envelope(key, {"_": "MessageSession", "sessionId": session.id, "content": TEXT})
    waiting = asyncio.create_task(world.post(body))
    await until(lambda: world.runs.started)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await world.post(body))[0] == 409, "the first still runs"
    run_id, notify = world.runs.started[0]
    world.runs.settle(run_id, types_pb2.TurnOutcome(status="succeeded", assistant_event_id="e"), notify)
    await until(lambda: not world.edge._window._running)
    assert (await world.post(body))[1]["assistantEventId"] == "e" and len(world.runs.started) == 1


async def test_many_mutating_requests_at_once(world: World) -> None:
    key = wire.Key.generate()
    bodies = [wire.sign_envelope(key, {"_": "SetSecret", "name": f"n{i}", "value": b"v"}) for i in range(150)]
    answers = await asyncio.gather(*(world.post(body) for body in bodies))
    assert {a[0] for a in answers} == {200} and len(world.secrets.seen) == 150


async def test_stopping_sends_waiting_callers_to_another_edge(world: World) -> None:
    key, session = conversation(world)
    body = wire.sign_envelope(key, {"_": "MessageSession", "sessionId": session.id, "content": TEXT})

    async def send() -> tuple[int, str, Any]:
        headers = {"content-type": "application/cbor"}
        async with world.http.post(f"{world.url}/api/message", data=body, headers=headers) as r:
            return r.status, r.headers.get("Retry-After", ""), wire.decode(await r.read())

    waiting = asyncio.create_task(send())
    await until(lambda: world.runs.started)
    await world.edge.stop()
    status, after, answer = await waiting
    assert (status, after) == (503, "1") and "send the request again" in answer["message"]
