"""The connections of one process.

asyncpg's own pool makes two tasks each time a connection is lent, which costs more than a statement does. This one
hands an idle connection over without a suspension, in the order of asking.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

_MEND_S = 5.0


class Pool:
    """At most `size` connections, made by `connect` when they are first needed."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], size: int) -> None:
        self._connect, self._size = connect, size
        self._slots = 0  # connections there are, and those being made
        self._idle: list[Any] = []
        self._lent: set[Any] = set()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._mending: set[asyncio.Task[None]] = set()
        self._closed = False
        self._quiet = asyncio.Event()

    async def acquire(self, wait_s: float) -> Any:
        """A connection, to be given to release().

        Raises TimeoutError when none is free within `wait_s` seconds, asyncpg.InterfaceError once closed, and what
        connecting raises.
        """
        if self._closed:
            raise asyncpg.InterfaceError("the pool is closed")
        while self._idle:
            conn = self._idle.pop()
            if not conn.is_closed():
                self._lent.add(conn)
                return conn
            self._slots -= 1
        async with asyncio.timeout(wait_s):
            if self._slots < self._size:
                self._slots += 1
                return await self._make()
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                conn = await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                    self._pass_on(waiter.result())
                raise
            if conn is None or conn.is_closed():
                return await self._make()
            self._lent.add(conn)
            return conn

    def release(self, conn: Any, *, clean: bool = True) -> None:
        """Take a connection back. Not `clean`: a statement may still run on it; it is seen to before it is lent."""
        self._lent.discard(conn)
        if self._closed or conn.is_closed():
            conn.terminate()
            self._pass_on(None)
            self._check_quiet()
        elif clean and not conn.is_in_transaction():
            self._pass_on(conn)
        else:
            task = asyncio.get_running_loop().create_task(self._mend(conn), name="mend a connection")
            self._mending.add(task)
            task.add_done_callback(self._mended)

    async def close(self, patience_s: float) -> None:
        """Lend no more; close what is free now and what is given back within `patience_s` seconds, cut off the rest."""
        self._closed = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(asyncpg.InterfaceError("the pool is closed"))
        self._waiting.clear()
        loop = asyncio.get_running_loop()
        end = loop.time() + patience_s
        idle, self._idle = self._idle, []
        if idle:
            await asyncio.wait([loop.create_task(conn.close(timeout=patience_s)) for conn in idle])
        self._check_quiet()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._quiet.wait(), max(0.0, end - loop.time()))
        for conn in list(self._lent):
            conn.terminate()
        for task in list(self._mending):
            task.cancel()

    async def _make(self) -> Any:
        try:
            conn = await self._connect()
        except BaseException:
            self._pass_on(None)
            raise
        if self._closed:
            conn.terminate()
            raise asyncpg.InterfaceError("the pool is closed")
        self._lent.add(conn)
        return conn

    async def _mend(self, conn: Any) -> None:
        try:
            # Waits until the server has answered the canceled statement. Rolled back here, since reset() would report
            # a transaction whose beginning was canceled as a fault of the program.
            if conn.is_in_transaction():
                await conn.execute("ROLLBACK", timeout=_MEND_S)
            await conn.reset(timeout=_MEND_S)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - whatever is wrong with it, it is not lent again
            conn.terminate()
        self._pass_on(None if conn.is_closed() or self._closed else conn)
        if self._closed:
            conn.terminate()

    def _mended(self, task: asyncio.Task[None]) -> None:
        self._mending.discard(task)
        self._check_quiet()

    def _check_quiet(self) -> None:
        if self._closed and not self._lent and not self._mending:
            self._quiet.set()

    def _pass_on(self, conn: Any) -> None:
        """Give a connection, or (None) the right to make one, to who has waited longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(conn)
                return
        if conn is None:
            self._slots -= 1
        else:
            self._idle.append(conn)
