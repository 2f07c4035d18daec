"""Real PostgreSQL, NATS and Valkey for the tests of runs."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from libs.egress import EgressPolicy
from libs.events import Bus
from libs.stack.scripted import ScriptedProvider
from libs.store import Database
from services.runs.providers import ModelGateway
from tests.runs.fakes import FakeSecrets, FakeSessions
from tests.runs.house import Clock, Store
from tests.runs.workshop import Workshop
from tests.support.database import database_of


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of a PostgreSQL with the runs schema, of a NATS and of a Valkey."""
    with database_of("runs", tmp_path_factory.mktemp("runs-stores")) as (url, stores):
        yield {"database": url, "nats": stores.nats_url, "redis": stores.redis_url}


@pytest_asyncio.fixture
async def store(stores: dict[str, str]) -> AsyncIterator[Store]:
    """An empty store of runs."""
    db = Database(stores["database"], size=10)
    await db.open()
    store = Store(db, Clock())
    await store.clear()
    try:
        yield store
    finally:
        await db.close()


@pytest_asyncio.fixture
async def shop(stores: dict[str, str]) -> AsyncIterator[Workshop]:
    """A workshop without workers; tests start their own."""
    async with ScriptedProvider() as provider:
        sessions, secrets = FakeSessions(), FakeSecrets(provider.url)
        await asyncio.gather(sessions.start(), secrets.start())
        gateway = ModelGateway(policy=EgressPolicy(allow_private=True), sleep=_no_pause)
        db, bus = Database(stores["database"], size=10), Bus(stores["nats"], "test")
        redis = Redis.from_url(stores["redis"], socket_timeout=1.0)
        await asyncio.gather(db.open(), bus.start())
        shop = Workshop(stores, provider, sessions, secrets, gateway, db, bus, redis)
        await shop.open()
        try:
            yield shop
        finally:
            await shop.close()
            await redis.aclose()
            await bus.close()
            await db.close()
            await gateway.aclose()
            await asyncio.gather(sessions.stop(), secrets.stop())


async def _no_pause(_: float) -> None:
    await asyncio.sleep(0)
