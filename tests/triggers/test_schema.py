"""The migrations make exactly the tables the code declares."""

from __future__ import annotations

import asyncio

import pytest

from libs.stack import Stores
from libs.stack.keys import Keys
from libs.stack.layout import role_of, role_url
from libs.stack.prepare import prepare
from services.triggers.store.tables import metadata
from tests.support.schema import differences


async def test_migrations_and_tables_agree(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("triggers-schema")
    keys = Keys(folder)
    stores = Stores(folder, keys, folder, redis_url="redis://unused", nats_url="nats://unused")
    await asyncio.to_thread(stores.start)
    try:
        passwords = keys.role_passwords(["triggers"])
        await prepare(stores.database_url, passwords, ["triggers"])
        role = role_of("triggers")
        assert await differences(role_url(stores.database_url, role, passwords[role]), metadata) == []
    finally:
        await asyncio.to_thread(stores.stop, 1)
