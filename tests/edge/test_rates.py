"""Requests a second: buckets of one edge, what edges share, and the refusals over HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from libs import wire
from libs.errors import TooMany
from libs.stack.stores import Stores
from services.edge.domain.rates import Rate, Rates, Spent
from services.edge.domain.replay import StoreAway
from services.edge.upstream.valkey import Valkey
from tests.edge.conftest import Start, until

OFF = Rate(0, 1)
MESSAGE = {"_": "Error", "message": "Too many requests"}


class Shared:
    """Buckets without time; `away` is whether they cannot be reached."""

    def __init__(self) -> None:
        self.left: dict[str, float] = {}
        self.told: list[list[Spent]] = []
        self.away = False

    async def spend(self, spent: Sequence[Spent]) -> list[float]:
        if self.away:
            raise StoreAway
        self.told.append(list(spent))
        for one in spent:
            self.left[one.key] = self.left.get(one.key, one.rate.burst) - one.count
        return [self.left[one.key] for one in spent]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def passes(rates: Rates, account: str, most: int = 10_000) -> int:
    """How many requests of an account pass now."""
    for n in range(most):
        try:
            rates.account(account)
        except TooMany:
            return n
    return most


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    rates = Rates(Shared(), account=Rate(10, 5), address=OFF, now=clock)
    assert passes(rates, "a") == 5 and passes(rates, "b") == 5
    with pytest.raises(TooMany, match=r"^Too many requests$") as refused:
        rates.account("a")
    assert refused.value.retry_after_s == pytest.approx(0.1) and refused.value.status == 429
    clock.now += 0.25
    assert passes(rates, "a") == 2, "what was refused costs nothing"
    clock.now += 60
    assert passes(rates, "a") == 5


def test_no_limit() -> None:
    rates = Rates(Shared(), account=OFF, address=Rate(1, 1), now=Clock())
    assert passes(rates, "a") == 10_000
    rates.address("x")
    with pytest.raises(TooMany):
        rates.address("x")


@pytest.fixture
async def sharing() -> AsyncIterator[tuple[Shared, Clock, list[Rates]]]:
    shared, clock = Shared(), Clock()
    edges = [Rates(shared, account=Rate(10, 100), address=OFF, now=clock) for _ in range(2)]
    tasks = [asyncio.create_task(edge.share()) for edge in edges]
    yield shared, clock, edges
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_one_edge_spends_another_lacks(sharing: tuple[Shared, Clock, list[Rates]]) -> None:
    shared, _, (one, other) = sharing
    assert passes(one, "a", 70) == 70
    await until(lambda: shared.left.get("account:a") == 30)
    other.account("a")
    await until(lambda: shared.left["account:a"] == 29)
    await until(lambda: passes(other, "a") in range(25, 30))
    await until(lambda: shared.left["account:a"] <= 0)
    one.account("a")  # it had 30 left when it last asked
    await until(lambda: passes(one, "a") == 0)


async def test_many_are_told_in_one_command(sharing: tuple[Shared, Clock, list[Rates]]) -> None:
    shared, _, (one, _) = sharing
    for n in range(20):
        one.account(str(n))
    await until(lambda: shared.told)
    assert len(shared.told) == 1 and len(shared.told[0]) == 20


async def test_full_buckets_are_dropped(sharing: tuple[Shared, Clock, list[Rates]]) -> None:
    shared, clock, (one, _) = sharing
    one.account("a")
    await until(lambda: shared.told)
    clock.now += 60
    await until(lambda: not one._buckets)
    assert passes(one, "a") == 100


async def test_while_the_store_is_away_an_edge_limits_by_itself(sharing: tuple[Shared, Clock, list[Rates]]) -> None:
    shared, clock, (one, _) = sharing
    shared.away = True
    assert passes(one, "a") == 100
    await asyncio.sleep(0)
    clock.now += 1
    assert passes(one, "a") == 10


async def test_it_ends_although_the_store_swallows_the_cancellation() -> None:
    asked = asyncio.Event()

    class Swallows(Shared):
        async def spend(self, spent: Sequence[Spent]) -> list[float]:
            asked.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
            return [float(one.rate.burst) for one in spent]

    rates = Rates(Swallows(), account=Rate(10, 100), address=OFF)
    rates.account("a")
    task = asyncio.create_task(rates.share())
    await asked.wait()
    task.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait([task])
    assert task.cancelled()


async def test_shared_buckets(stores: Stores) -> None:
    valkey = Valkey(stores.redis_url)
    rate = Rate(1_000, 50)
    try:
        assert await valkey.spend([Spent("t:a", rate, 20), Spent("t:b", rate, 1)]) == [30, 49]
        (left,) = await valkey.spend([Spent("t:a", rate, 500)])
        assert left == -50, "a debt is at most one burst"
        end = time.monotonic() + 5
        while (await valkey.spend([Spent("t:a", rate, 0)]))[0] < 50:
            assert time.monotonic() < end
    finally:
        await valkey.close()


async def test_an_account_over_http_and_on_a_socket(start: Start) -> None:
    world = await start(requests_per_account=0.01, request_burst_per_account=3)
    key = wire.Key.generate()
    got = [await world.post(wire.sign_envelope(key, {"_": "ListAgents"})) for _ in range(4)]
    assert [status for status, _, _ in got] == [200, 200, 200, 429]
    _, answer, headers = got[-1]
    assert answer == MESSAGE and 1 <= int(headers["retry-after"]) <= 100
    assert world.sessions.calls["ListAgents"] == 3
    body = wire.sign_envelope(key, {"_": "SetSecret", "name": "n", "value": b"v"})
    assert (await world.post(body))[0] == 429 and not world.secrets.seen
    socket = await world.socket()
    refused = await world.subscribe(socket, key, "account/" + wire.account_id(key.principal))
    assert refused == {"_": "error", "message": "Too many requests"}
    assert (await world.act(wire.Key.generate(), "ListAgents"))[0] == 200


async def test_an_address(start: Start) -> None:
    world = await start(requests_per_address=0.01, request_burst_per_address=2)
    statuses = [(await world.act(wire.Key.generate(), "ListAgents"))[0] for _ in range(3)]
    assert statuses == [200, 200, 429]
    async with world.http.get(world.url + "/api/health") as health:
        assert health.status == 200


async def test_the_rates_are_lifted(start: Start) -> None:
    world = await start(rate_limits=False, requests_per_account=0.01, request_burst_per_account=1)
    key = wire.Key.generate()
    assert [(await world.act(key, "ListAgents"))[0] for _ in range(3)] == [200] * 3
