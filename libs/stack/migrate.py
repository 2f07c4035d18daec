"""`seed-agents migrate`: what `up` does to the database, without serving."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

from libs.store.migrate import upgrade

from .errors import StackError
from .keys import Keys
from .layout import DATABASE_SERVICES
from .prepare import prepare
from .record import DataDirectoryLock, end_leftovers
from .stores import Stores


def migrate(data_dir: Path, url: str | None, service: str | None = None) -> list[str]:
    """Migrate; returns what was done, one line each.

    Without `service`: every service, with roles and schemas, in the server at `url` (an administrator's) or, without
    one, in the embedded server of `data_dir`, started for the purpose. With `service`: only its migrations, `url` being
    its own role's, as a job in a cluster does it. StackError when it cannot be done; AlreadyRunning when `up` serves
    from `data_dir`.
    """
    data_dir = data_dir.resolve()
    try:
        if service is not None:
            if service not in DATABASE_SERVICES:
                raise StackError(f"{service} has no database. Those that have: {', '.join(DATABASE_SERVICES)}.")
            if url is None:
                raise StackError("--service needs SEED_AGENTS_DATABASE_URL, the URL of the service's own role.")
            changed = asyncio.run(upgrade(service, url))
            return [f"migrated {service}" if changed else f"{service} is up to date"]
        return _migrate_all(data_dir, url)
    except asyncpg.PostgresError as error:
        raise StackError(f"The database refused: {error}") from error


def _migrate_all(data_dir: Path, url: str | None) -> list[str]:
    data_dir.mkdir(parents=True, exist_ok=True)
    keys = Keys(data_dir)
    passwords = keys.role_passwords(DATABASE_SERVICES)
    if url is not None:
        return asyncio.run(prepare(url, passwords)) or ["everything is up to date"]
    lock = DataDirectoryLock(data_dir)
    lock.acquire()
    try:
        end_leftovers(data_dir)
        logs = data_dir / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
        # Only PostgreSQL is needed.
        stores = Stores(data_dir, keys, logs, nats_url="-", redis_url="-")
        stores.start()
        try:
            return asyncio.run(prepare(stores.database_url, passwords)) or ["everything is up to date"]
        finally:
            stores.stop()
    finally:
        lock.release()
