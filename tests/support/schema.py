"""Comparing a migrated database with the tables the code declares."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine


async def differences(url: str, metadata: sa.MetaData) -> list[Any]:
    """What a new migration would change in the database at `url`."""
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://", 1))

    def compare(connection: sa.Connection) -> list[Any]:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_object": lambda o, n, k, r, c: n != "alembic_version"}
        )
        return list(compare_metadata(context, metadata))

    try:
        async with engine.connect() as connection:
            return await connection.run_sync(compare)
    finally:
        await engine.dispose()
