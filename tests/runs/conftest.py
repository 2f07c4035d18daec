"""Real PostgreSQL, NATS and Valkey for the tests of runs."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from libs.stack import Stores
from libs.stack.keys import Keys
from libs.stack.layout import role_of, role_url
from libs.stack.prepare import prepare
from libs.store import Database
from tests.runs.house import Clock, Store


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of a PostgreSQL with the runs schema, of a NATS and of a Valkey."""
    folder = tmp_path_factory.mktemp("runs-stores")
    keys = Keys(folder)
    stores = Stores(folder, keys, folder)
    stores.start()
    try:
        role, passwords = role_of("runs"), keys.role_passwords(["runs"])
        asyncio.run(prepare(stores.database_url, passwords, ["runs"]))
        yield {
            "database": role_url(stores.database_url, role, passwords[role]),
            "nats": stores.nats_url,
            "redis": stores.redis_url,
        }
    finally:
        stores.stop(1)


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
