"""The pool and its transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import asyncpg

from libs.errors import Unavailable
from libs.store.sql import Sql

Row = asyncpg.Record

_AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    TimeoutError,
)


class Reader(Protocol):
    """What can run statements: a Database (each on its own) or a Tx (all in one transaction)."""

    async def fetch(self, statement: Sql, **values: Any) -> list[Row]:
        """All rows."""
        ...

    async def fetchrow(self, statement: Sql, **values: Any) -> Row | None:
        """The first row, if any."""
        ...

    async def fetchval(self, statement: Sql, **values: Any) -> Any:
        """The first column of the first row, or None."""
        ...


class Tx:
    """An open transaction. `emit` adds a message to the outbox: it is published right after the commit."""

    __slots__ = ("_conn", "emitted")

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.emitted: list[tuple[str, bytes]] = []

    def emit(self, subject: str, body: bytes) -> None:
        """Publish `body` on `subject` once this transaction has committed, at least once."""
        self.emitted.append((subject, body))

    async def fetch(self, statement: Sql, **values: Any) -> list[Row]:
        """All rows of a statement."""
        return await self._conn.fetch(statement.text, *statement.bind(values))

    async def fetchrow(self, statement: Sql, **values: Any) -> Row | None:
        """The first row of a statement, if any."""
        return await self._conn.fetchrow(statement.text, *statement.bind(values))

    async def fetchval(self, statement: Sql, **values: Any) -> Any:
        """The first column of the first row, or None."""
        return await self._conn.fetchval(statement.text, *statement.bind(values))

    async def execute(self, statement: Sql, **values: Any) -> int:
        """Run a statement; returns how many rows it touched."""
        return _count(await self._conn.execute(statement.text, *statement.bind(values)))

    async def executemany(self, statement: Sql, rows: list[dict[str, Any]]) -> None:
        """Run a statement once a row."""
        await self._conn.executemany(statement.text, [statement.bind(r) for r in rows])


class Database:
    """A pool of connections to one schema. Raises Unavailable (503) while the server is away."""

    def __init__(self, url: str, *, size: int, wait_s: float = 10.0) -> None:
        self._url, self._size, self._wait = url, size, wait_s
        self._pool: Any = None

    async def open(self, *, patience_s: float = 30.0) -> None:
        """Connect, waiting up to `patience_s` seconds for the server to come up."""
        end = asyncio.get_running_loop().time() + patience_s
        while True:
            try:
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=1,
                    max_size=self._size,
                    # Nothing here leaves session state behind, so the reset round trip on release is not needed.
                    reset=_keep,
                    command_timeout=30,
                    statement_cache_size=512,
                    server_settings={"application_name": "seed-agents"},
                )
                return
            except _AWAY:
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(0.2)

    async def close(self) -> None:
        """Close all connections, letting running statements end within five seconds."""
        if self._pool is None:
            return
        try:
            await asyncio.wait_for(self._pool.close(), 5)
        except TimeoutError:
            self._pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A raw asyncpg connection, for what the other methods do not offer."""
        try:
            conn = await self._pool.acquire(timeout=self._wait)
        except _AWAY as e:
            raise Unavailable("The database is not available, try again", retry_after_s=1) from e
        try:
            yield conn
        except (asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.CrashShutdownError) as e:
            raise Unavailable("The database is not available, try again", retry_after_s=1) from e
        except asyncpg.InterfaceError as e:
            if not conn.is_closed():
                raise
            raise Unavailable("The database is not available, try again", retry_after_s=1) from e
        finally:
            await self._pool.release(conn)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """A read-committed transaction without an outbox; committed on leaving, rolled back on an error."""
        async with self.connection() as conn:
            async with conn.transaction():
                tx = Tx(conn)
                yield tx
                if tx.emitted:
                    raise RuntimeError("emit() needs Outbox.transaction()")

    async def fetch(self, statement: Sql, **values: Any) -> list[Row]:
        """All rows of a statement run on its own."""
        async with self.connection() as conn:
            return await conn.fetch(statement.text, *statement.bind(values))

    async def fetchrow(self, statement: Sql, **values: Any) -> Row | None:
        """The first row of a statement run on its own, if any."""
        async with self.connection() as conn:
            return await conn.fetchrow(statement.text, *statement.bind(values))

    async def fetchval(self, statement: Sql, **values: Any) -> Any:
        """The first column of the first row of a statement run on its own, or None."""
        async with self.connection() as conn:
            return await conn.fetchval(statement.text, *statement.bind(values))

    async def execute(self, statement: Sql, **values: Any) -> int:
        """Run a statement on its own; returns how many rows it touched."""
        async with self.connection() as conn:
            return _count(await conn.execute(statement.text, *statement.bind(values)))


async def _keep(_: Any) -> None:
    return None


def _count(tag: str) -> int:
    last = tag.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0
