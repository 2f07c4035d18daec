"""A PostgreSQL with the schema of triggers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from libs.stack import Stores
from libs.stack.keys import Keys
from libs.stack.layout import role_of, role_url
from libs.stack.prepare import prepare


@pytest.fixture(scope="session")
def triggers_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the service's own role."""
    folder = tmp_path_factory.mktemp("triggers-database")
    keys = Keys(folder)
    stores = Stores(folder, keys, folder, redis_url="redis://unused", nats_url="nats://unused")
    stores.start()
    try:
        passwords = keys.role_passwords(["triggers"])
        asyncio.run(prepare(stores.database_url, passwords, ["triggers"]))
        role = role_of("triggers")
        yield role_url(stores.database_url, role, passwords[role])
    finally:
        stores.stop(1)
