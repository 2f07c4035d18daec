"""The migrations make exactly the tables the code declares."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine

from services.runs.store.tables import metadata


async def test_migrations_and_tables_agree(stores: dict[str, str]) -> None:
    engine = create_async_engine(stores["database"].replace("postgresql://", "postgresql+asyncpg://", 1))

    def compare(connection: sa.Connection) -> list[object]:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_object": lambda o, n, k, r, c: n != "alembic_version"}
        )
        return list(compare_metadata(context, metadata))

    async with engine.connect() as connection:
        assert await connection.run_sync(compare) == []
    await engine.dispose()
