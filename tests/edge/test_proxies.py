"""X-Forwarded-For: believed as far as trusted proxies wrote it, and no further."""

from __future__ import annotations

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from libs import wire
from services.edge.domain.proxies import Proxies, networks
from services.edge.settings import EdgeSettings
from tests.edge.conftest import Start

TRUSTED = "10.0.0.0/8, 192.0.2.7, fd00::/8"


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.5", [], "203.0.113.5"),
        ("203.0.113.5", ["198.51.100.1"], "203.0.113.5"),  # no proxy of ours: its word counts for nothing
        ("10.1.2.3", [], "10.1.2.3"),
        ("10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", ["1.2.3.4, 198.51.100.1"], "198.51.100.1"),  # the client wrote the first one itself
        ("10.1.2.3", ["1.2.3.4, 198.51.100.1, 192.0.2.7"], "198.51.100.1"),
        ("10.1.2.3", ["1.2.3.4", "198.51.100.1,10.9.9.9"], "198.51.100.1"),
        ("10.1.2.3", ["10.0.0.1, 10.0.0.2"], "10.0.0.1"),
        ("10.1.2.3", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.1.2.3", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.1.2.3", ['"[2001:DB8:0::1]"'], "2001:db8::1"),
        ("::ffff:10.1.2.3", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::1"),
        ("10.1.2.3", ["unknown"], "10.1.2.3"),
        ("10.1.2.3", ["198.51.100.1, unknown"], "10.1.2.3"),
        ("10.1.2.3", [""], "10.1.2.3"),
        ("", ["198.51.100.1"], ""),
    ],
)
def test_the_rightmost_that_is_not_trusted(peer: str, forwarded: list[str], client: str) -> None:
    assert Proxies(networks(TRUSTED)).client(peer, forwarded) == client


@given(st.lists(st.text(max_size=60), max_size=4))
def test_whatever_a_client_sends_it_is_seen_as_itself(sent: list[str]) -> None:
    """Our proxy appends the address it was asked from; what stands before that changes nothing."""
    proxies = Proxies(networks(TRUSTED))
    assert proxies.client("10.1.2.3", [*sent, "198.51.100.1"]) == "198.51.100.1"
    assert proxies.client("10.1.2.3", [", ".join([*sent, "198.51.100.1"])]) == "198.51.100.1"
    assert proxies.client("198.51.100.1", sent) == "198.51.100.1"


def test_settings_name_networks() -> None:
    with pytest.raises(ValidationError, match="trusted_proxies"):
        EdgeSettings(internal_key="k" * 32, trusted_proxies="10.0.0.0/8, ingress")
    assert not Proxies(networks("")) and Proxies(networks("::1"))


async def test_requests_are_counted_by_client_behind_a_trusted_proxy(start: Start) -> None:
    world = await start(trusted_proxies="127.0.0.0/8", requests_per_address=0.01, request_burst_per_address=2)

    async def ask(forwarded: str) -> int:
        body = wire.sign_envelope(wire.Key.generate(), {"_": "ListAgents"})
        status, _, _ = await world.post(body, **{"X-Forwarded-For": forwarded})
        return status

    assert [await ask("198.51.100.1") for _ in range(3)] == [200, 200, 429]
    assert [await ask(f"203.0.113.{n}, 198.51.100.1") for n in range(2)] == [429, 429]
    assert [await ask("198.51.100.2") for _ in range(3)] == [200, 200, 429]


async def test_without_trusted_proxies_the_peer_counts(start: Start) -> None:
    world = await start(requests_per_address=0.01, request_burst_per_address=2)
    statuses = []
    for n in range(3):
        body = wire.sign_envelope(wire.Key.generate(), {"_": "ListAgents"})
        statuses.append((await world.post(body, **{"X-Forwarded-For": f"198.51.100.{n}"}))[0])
    assert statuses == [200, 200, 429]


async def test_sockets_are_counted_by_client_behind_a_trusted_proxy(start: Start) -> None:
    world = await start(trusted_proxies="127.0.0.1", sockets_per_address=1)
    url = f"{world.url}/agents/ws"

    async def connect(forwarded: str) -> aiohttp.ClientWebSocketResponse:
        return await world.http.ws_connect(url, headers={"X-Forwarded-For": forwarded})

    first = await connect("198.51.100.1")
    assert (await first.receive_json())["_"] == "connected"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await connect("203.0.113.9, 198.51.100.1")
    assert refused.value.status == 429
    other = await connect("198.51.100.2")
    assert (await other.receive_json())["_"] == "connected"
    await first.close()
    await other.close()
