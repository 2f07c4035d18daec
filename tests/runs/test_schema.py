"""The migrations make exactly the tables the code declares."""

from services.runs.store.tables import metadata
from tests.support.schema import differences


async def test_migrations_and_tables_agree(stores: dict[str, str]) -> None:
    assert await differences(stores["database"], metadata) == []
