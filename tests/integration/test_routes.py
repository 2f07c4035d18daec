"""The HTTP surface: routes, headers, versions, delegated signers, and input that is not a request."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from libs.client import Key
from libs.protocol import ACTIONS, Error
from libs.protocol.actions import ListAgents
from libs.protocol.routes import HealthJson, VersionJson
from libs.wire import decode, encode, sign_capability, sign_envelope
from tests.support.kit import World, refused

CBOR = {"Content-Type": "application/cbor"}
LEAVES_THE_MACHINE = {"CreateSigningIdentity"}
"""With empty fields it publishes an account on the Hypermedia network."""


@pytest.fixture
async def http(world: World) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(world.urls[0]) as session:
        yield session


async def post(http: aiohttp.ClientSession, body: bytes, **options: Any) -> tuple[int, Any]:
    async with http.post("/api/message", data=body, headers=options.pop("headers", CBOR), **options) as answer:
        assert answer.headers["X-Agents-Protocol"] == "3"
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        return answer.status, decode(await answer.read())


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"_": "Error", "message": message, **more}


@pytest.mark.parametrize("prefix", ["", "/agents"])
async def test_every_route_answers_under_both_prefixes(http: aiohttp.ClientSession, prefix: str) -> None:
    async with http.get(f"{prefix}/api/health") as answer:
        health = msgspec.json.decode(await answer.read(), type=HealthJson)
        assert (answer.status, health.status, health.code_exec) == (200, "ok", False)
        assert health.code_exec_reason == "Code execution is disabled by configuration"
    async with http.get(f"{prefix}/api/version") as answer:
        version = msgspec.json.decode(await answer.read(), type=VersionJson)
        assert (version.protocol, version.min_client_protocol) == (3, 1)
    body = sign_envelope(Key.generate(), {"_": "ListAgents"})
    async with http.post(f"{prefix}/api/message", data=body, headers=CBOR) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/cbor"
        assert decode(await answer.read()) == {"_": "ListAgentsResponse", "agents": []}
    async with http.options(f"{prefix}/api/message") as answer:
        assert (answer.status, await answer.read()) == (204, b"")
        assert answer.headers["Access-Control-Allow-Methods"] == "GET, POST, OPTIONS"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/api/message"), ("HEAD", "/api/health"), ("POST", "/api/version"), ("GET", "/")]
)
async def test_what_is_no_route_is_not_found(http: aiohttp.ClientSession, method: str, path: str) -> None:
    async with http.request(method, path) as answer:
        assert answer.status == 404
        assert method == "HEAD" or await answer.text() == "Not Found"


async def test_the_websocket_route_without_an_upgrade(http: aiohttp.ClientSession) -> None:
    async with http.get("/agents/ws") as answer:
        assert (answer.status, await answer.text()) == (400, "WebSocket upgrade failed")


async def test_what_is_not_a_signed_request(http: aiohttp.ClientSession) -> None:
    key = Key.generate()
    good = sign_envelope(key, {"_": "ListAgents"})
    plain = decode(good)
    assert await post(http, good, headers={"Content-Type": "text/plain"}) == (
        415,
        error("Content-Type must be application/cbor"),
    )
    for body in (b"", b"\xff", good + b"\x00", b"\x81" * 300 + b"\x00"):
        assert await post(http, body) == (400, error("Invalid CBOR request"))
    for body, message in (
        (encode(None), "Invalid envelope"),
        (encode([]), "Invalid envelope type"),
        (encode({**plain, "signer": b"x"}), "Invalid signer"),
        (encode({**plain, "account": "z6Mk"}), "Invalid account"),
        (encode({**plain, "sig": bytes(63)}), "Invalid signature bytes"),
        (encode({**plain, "action": {}}), "Invalid action"),
        (encode({**plain, "action": {"_": "ListAgents"}}), "Invalid action timestamp"),
        (encode({**plain, "sig": bytes(64)}), "Invalid signature"),
        (encode({**plain, "extra": 1}), "Invalid signature"),
        (sign_envelope(key, {"_": "ListAgents"}, ts=1), "Action timestamp is outside allowed window"),
        (
            sign_envelope(key, {"_": "ListAgents"}, account=Key.generate().principal),
            "Signer is not authorized for account",
        ),
    ):
        assert await post(http, body) == (401, error(message))


async def test_a_mutation_acts_once_however_often_its_bytes_come(http: aiohttp.ClientSession, world: World) -> None:
    owner = await world.owner()
    body = owner.client.signer.sign({"_": "CreateSession", "agentId": owner.agent}, owner.client.signer.key.principal)
    answers = [await post(http, body) for _ in range(3)]
    assert answers[0][0] == 200
    assert answers == [answers[0]] * 3
    assert len((await owner.client.call("ListSessions")).sessions) == 1
    async with aiohttp.ClientSession(world.urls[1]) as other_edge:
        assert await post(other_edge, body) == answers[0]


async def test_old_and_new_clients(http: aiohttp.ClientSession) -> None:
    key = Key.generate()
    for protocol in (None, 1, 2, 99):
        status, answer = await post(http, sign_envelope(key, {"_": "ListAgents"}, protocol=protocol))
        assert (status, answer["agents"]) == (200, [])


async def test_every_action_refuses_empty_fields_with_a_documented_status(http: aiohttp.ClientSession) -> None:
    """Those that are not served yet say so, and nothing is a fault of the server."""
    key = Key.generate()
    for name in sorted(ACTIONS.keys() - LEAVES_THE_MACHINE):
        status, answer = await post(http, sign_envelope(key, {"_": name}))
        assert status in (200, 400, 403, 404), f"{name}: {status} {answer}"
        if status != 200:
            message = msgspec.convert(answer, Error).message
            assert not message.startswith("Unsupported action"), name
            assert "not serve" not in message or message == f"This server does not serve {name} yet"
    assert await post(http, sign_envelope(key, {"_": "Nonsense"})) == (400, error("Unsupported action: Nonsense"))
    assert await post(http, sign_envelope(key, {"_": "Subscribe", "key": "account/x"})) == (
        400,
        error("Subscribe is only supported over WebSocket"),
    )


async def test_a_delegate_signs_for_the_account_that_let_it(world: World) -> None:
    owner = await world.owner()
    delegate = world.client()
    acting = world.client(key=delegate.signer, account=owner.client.account)
    with refused(401, "Signer is not authorized for account"):
        await acting.call(ListAgents())
    capability = sign_capability(owner.client.signer.key, delegate.signer.key.principal, ts=time.time() * 1000)
    answer = await delegate.call("RegisterSigner", capability=capability)
    assert (answer.account_id, answer.signer_id) == (owner.client.account, delegate.account)
    assert [agent.id for agent in (await acting.call(ListAgents())).agents] == [owner.agent]
    session = await owner.session()
    await acting.message(session, "from the delegate")
    meta = (await owner.events(session))[0].event["meta"]
    assert meta == {"accountId": owner.client.account, "signerId": delegate.account}
    with refused(400, "Invalid capability bytes"):
        await delegate.call("RegisterSigner", capability=b"")
