"""Alembic migrations of a service, each in its own schema with its own version table."""

from __future__ import annotations

import asyncio
from importlib import resources
from typing import Any

import asyncpg
import sqlalchemy as sa

VERSION_TABLE = "alembic_version"
"""Alembic's own default; every service has one in its schema."""


def location(service: str) -> str:
    """Folder of a service's migrations."""
    return str(resources.files(f"services.{service}.store") / "migrations")


def config(service: str, url: str) -> Any:
    """Alembic's configuration for a service; `url` is the PostgreSQL URL of the service's own role."""
    from alembic.config import Config

    c = Config()
    c.set_main_option("script_location", location(service).replace("%", "%%"))
    c.attributes["url"] = url
    return c


def head(service: str) -> str | None:
    """The newest revision the code knows."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory(location(service)).get_current_head()


async def current(url: str) -> str | None:
    """The revision the database is at; None before the first migration."""
    conn = await asyncpg.connect(url)
    try:
        return await conn.fetchval("select version_num from alembic_version")
    except asyncpg.UndefinedTableError:
        return None
    finally:
        await conn.close()


async def upgrade(service: str, url: str) -> bool:
    """Bring the schema to the newest revision; False when it was there already. Safe to run from many processes."""
    newest = await asyncio.to_thread(head, service)
    if await current(url) == newest:
        return False
    from alembic import command

    await asyncio.to_thread(command.upgrade, config(service, url), "head")
    return True


def run_env(metadata: sa.MetaData) -> None:
    """Body of every service's migrations/env.py: run the migrations on asyncpg, one runner at a time."""
    from alembic import context
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    url: str = context.config.attributes["url"]
    if url.startswith("postgres://"):
        url = "postgresql://" + url.removeprefix("postgres://")
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://", 1), poolclass=NullPool)

    def migrate(connection: sa.Connection) -> None:
        context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
        with context.begin_transaction():
            # One lock a database: pods that start together migrate one after the other.
            connection.execute(sa.text("select pg_advisory_xact_lock(hashtext('seed-agents-migrate'))"))
            context.run_migrations()

    async def run() -> None:
        async with engine.connect() as connection:
            await connection.run_sync(migrate)
            await connection.commit()
        await engine.dispose()

    asyncio.run(run())
