"""The migrations make exactly the tables the code declares."""

from services.sessions.store.tables import metadata
from tests.support.schema import differences


async def test_migrations_and_tables_agree(sessions_stores: dict[str, str]) -> None:
    assert await differences(sessions_stores["database"], metadata) == []
