"""The pool and its transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Protocol

import asyncpg

from libs.errors import Unavailable
from libs.signatures import SignedCall
from libs.store.pool import Pool
from libs.store.signatures import AcceptedSignatures
from libs.store.sql import Sql

Row = asyncpg.Record

_LOST = (
    ConnectionError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InternalClientError,  # the server said good-bye, and the end of the connection is not read yet
    TimeoutError,
)
_AWAY = (*_LOST, OSError, asyncpg.InterfaceError, asyncpg.TooManyConnectionsError)


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


class Emitter(Protocol):
    """What takes messages for the outbox: a Tx, or a Draft for a transaction of one statement."""

    def emit(self, subject: str, body: bytes) -> None:
        """Publish `body` on `subject` once the change has committed, at least once."""
        ...


class Tx:
    """An open transaction. `emit` adds a message to the outbox: it is published right after the commit."""

    __slots__ = ("_conn", "emitted", "signed", "stored")

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.signed: SignedCall | None = None
        """The signed call whose signature this transaction has taken."""
        self.emitted: list[tuple[str, bytes]] = []
        self.stored: list[int] = []
        """The outbox rows of what was emitted, in its order; the outbox fills it."""

    def give_back(self) -> None:
        """It is rolled back: the signature is free again."""
        if self.signed is not None:
            self.signed.recorded = False

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


class Transaction:
    """A transaction as a block. A class, since a generator costs several times more.

    `last` is done at the end of the block, inside the transaction; `after` once it has committed.
    """

    __slots__ = ("_after", "_conn", "_db", "_last", "_tx")

    def __init__(
        self, db: Database, last: Callable[[Tx], Awaitable[None]], after: Callable[[Tx], None] | None = None
    ) -> None:
        self._db, self._last, self._after = db, last, after

    async def __aenter__(self) -> Tx:
        self._conn = conn = await self._db.acquire()
        try:
            await conn.execute("BEGIN")
        except BaseException as e:
            self._db.take_back(conn, e)
            raise
        self._tx = Tx(conn)
        return self._tx

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        conn, tx = self._conn, self._tx
        try:
            if error is not None:
                raise error
            await self._last(tx)
            await conn.execute("COMMIT")
        except BaseException as e:
            tx.give_back()
            # Canceled in the middle of a statement, a connection has to be seen to before anything else: the pool does.
            if isinstance(e, Exception) and not conn.is_closed() and conn.is_in_transaction():
                try:
                    await conn.execute("ROLLBACK")
                except BaseException as again:
                    self._db.take_back(conn, again)
                    raise
            self._db.take_back(conn, e)
            if e is error:
                return  # it goes on by itself
            raise
        self._db.release(conn)
        if self._after is not None:
            self._after(tx)


class Database:
    """A pool of connections to one schema. Raises Unavailable (503) while the server is away, too slow, or all in use.

    `size` is the most connections, `wait_s` the seconds to wait for one of them. With `accepted`, a transaction of a
    signed call (libs.signatures) records its signature, and raises Conflict when that has acted before.
    """

    def __init__(
        self, url: str, *, size: int, wait_s: float = 10.0, accepted: AcceptedSignatures | None = None
    ) -> None:
        self._url, self._wait, self.accepted = url, wait_s, accepted
        self._pool = Pool(self._connect, size)

    async def _connect(self) -> Any:
        return await asyncpg.connect(
            self._url,
            timeout=10,
            command_timeout=30,
            statement_cache_size=512,
            max_cached_statement_lifetime=0,
            server_settings={"application_name": "seed-agents"},
        )

    async def open(self, *, patience_s: float = 30.0) -> None:
        """Connect, waiting up to `patience_s` seconds for the server to come up; then raises what asyncpg raised."""
        end = asyncio.get_running_loop().time() + patience_s
        while True:
            try:
                self._pool.release(await self._pool.acquire(self._wait))
                return
            except asyncpg.ClientConfigurationError:
                raise
            except _AWAY:
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(0.2)

    async def close(self) -> None:
        """Close all connections, letting running statements end within five seconds."""
        await self._pool.close(5)

    async def acquire(self) -> Any:
        """A raw asyncpg connection, to be given to `release` or `take_back`; `connection` does both."""
        try:
            return await self._pool.acquire(self._wait)
        except _AWAY as e:
            raise _unavailable() from e

    def take_back(self, conn: Any, error: BaseException) -> None:
        """Release a connection whose use ended with `error`. Raises Unavailable when the server is to blame."""
        lost = isinstance(error, _LOST) or (isinstance(error, asyncpg.InterfaceError) and conn.is_closed())
        if lost and not isinstance(error, TimeoutError):
            conn.terminate()
        self._pool.release(conn, clean=not lost and isinstance(error, Exception))
        if lost:
            raise _unavailable() from error

    def release(self, conn: Any) -> None:
        """Give a connection back after a use that went well."""
        self._pool.release(conn)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A raw asyncpg connection, for what the other methods do not offer. Leave no session state behind on it."""
        conn = await self.acquire()
        try:
            yield conn
        except BaseException as e:
            self.take_back(conn, e)
            raise
        self._pool.release(conn)

    def transaction(self) -> Transaction:
        """A read-committed transaction without an outbox; committed on leaving, rolled back on an error."""
        return Transaction(self, self._at_the_end)

    async def _at_the_end(self, tx: Tx) -> None:
        if tx.emitted:
            raise RuntimeError("emit() needs Outbox.transaction()")
        await self.accept(tx)

    async def accept(self, tx: Tx) -> None:
        """Record the signature of the call that is served, unless it is recorded. Raises Conflict when it acted before.

        Every transaction does so in the end. One that is open while the world outside is asked to do something does it
        before.
        """
        if self.accepted is not None and (call := self.accepted.take()) is not None:
            tx.signed = call
            await self.accepted.record(tx, call)

    async def fetch(self, statement: Sql, **values: Any) -> list[Row]:
        """All rows of a statement run on its own."""
        return await self._run(asyncpg.Connection.fetch, statement, values)

    async def fetchrow(self, statement: Sql, **values: Any) -> Row | None:
        """The first row of a statement run on its own, if any."""
        return await self._run(asyncpg.Connection.fetchrow, statement, values)

    async def fetchval(self, statement: Sql, **values: Any) -> Any:
        """The first column of the first row of a statement run on its own, or None."""
        return await self._run(asyncpg.Connection.fetchval, statement, values)

    async def execute(self, statement: Sql, **values: Any) -> int:
        """Run a statement on its own; returns how many rows it touched."""
        return _count(await self._run(asyncpg.Connection.execute, statement, values))

    async def _run(self, method: Callable[..., Awaitable[Any]], statement: Sql, values: dict[str, Any]) -> Any:
        arguments = statement.bind(values)
        conn = await self.acquire()
        try:
            answer = await method(conn, statement.text, *arguments)
        except BaseException as e:
            self.take_back(conn, e)
            raise
        self._pool.release(conn)
        return answer


def _unavailable() -> Unavailable:
    return Unavailable("The database is not available, try again", retry_after_s=1)


def _count(tag: str) -> int:
    last = tag.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0
