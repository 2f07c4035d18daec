"""The migrations make exactly the tables the code declares."""

from services.memory.store.tables import metadata
from tests.support.schema import differences


async def test_migrations_and_tables_agree(database_url: str) -> None:
    assert await differences(database_url, metadata) == []
