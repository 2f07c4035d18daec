"""Where reading a feed goes on, held by one process at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.store import Database, Tx, sql
from services.triggers.store.rows import text
from services.triggers.store.tables import cursors

_c = cursors.c

_open = sql(insert(cursors).values(feed=text("feed"), position=sa.literal_column("''")).on_conflict_do_nothing())
_hold = sql(sa.select(_c.position).where(_c.feed == text("feed")).with_for_update(skip_locked=True))
_move = sql(sa.update(cursors).where(_c.feed == text("feed")).values(position=text("position")))


class Cursor:
    """A place in a feed. `move` is remembered once the hold has ended well."""

    def __init__(self, tx: Tx, feed: str, position: str) -> None:
        self._tx, self._feed, self.position = tx, feed, position

    async def move(self, position: str) -> None:
        """Go on from here."""
        self.position = position
        await self._tx.execute(_move, feed=self._feed, position=position)


class CursorStore:
    """Cursors of one database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @asynccontextmanager
    async def hold(self, feed: str) -> AsyncIterator[Cursor | None]:
        """The cursor of a feed, or None while another process holds it. It is free again on leaving."""
        await self._db.execute(_open, feed=feed)
        async with self._db.transaction() as tx:
            row = await tx.fetchrow(_hold, feed=feed)
            yield None if row is None else Cursor(tx, feed, row["position"])
