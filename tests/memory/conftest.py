"""A real PostgreSQL with the memory schema."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from libs.stack import Stores
from libs.stack.keys import Keys
from libs.stack.layout import role_of, role_url
from libs.stack.prepare import prepare


@pytest.fixture(scope="session")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a migrated database."""
    folder = tmp_path_factory.mktemp("memory-stores")
    keys = Keys(folder)
    stores = Stores(folder, keys, folder, redis_url="redis://unused")
    stores.start()
    try:
        passwords = keys.role_passwords(["memory"])
        asyncio.run(prepare(stores.database_url, passwords, ["memory"]))
        role = role_of("memory")
        yield role_url(stores.database_url, role, passwords[role])
    finally:
        stores.stop(1)
