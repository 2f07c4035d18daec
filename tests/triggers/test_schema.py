"""The migrations make exactly the tables the code declares."""

from __future__ import annotations

from services.triggers.store.tables import metadata
from tests.support.schema import differences


async def test_migrations_and_tables_agree(triggers_url: str) -> None:
    assert await differences(triggers_url, metadata) == []
