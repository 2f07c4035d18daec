"""Locks that hold across replicas while the world outside is asked."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import sqlalchemy as sa

from libs.store import Database, sql


class Locks:
    """Advisory locks by name. Each held one keeps a database connection: at most `most` are held in this process."""

    def __init__(self, db: Database, most: int) -> None:
        self._db = db
        self._here: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._most = asyncio.Semaphore(most)
        key = sa.func.hashtextextended(sa.bindparam("name", type_=sa.Text), sa.text("1"))
        self._lock = sql(sa.select(sa.func.pg_advisory_xact_lock(key)))

    @asynccontextmanager
    async def hold(self, name: str, *, acts: bool = False) -> AsyncIterator[None]:
        """Hold the lock `name`; who waits for it in this process waits without a connection. Raises Unavailable.

        `acts`: what is done inside changes something outside, so the signature behind it is recorded before. Raises
        Conflict when that has acted before.
        """
        here = self._here.setdefault(name, asyncio.Lock())
        async with here, self._most, self._db.transaction() as tx:
            await tx.fetch(self._lock, name=name)
            if acts:
                await self._db.accept(tx)
            yield
