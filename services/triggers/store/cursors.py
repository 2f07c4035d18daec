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

# A lock of this kind writes nothing: a feed that rests costs no disk.
_hold = sql(sa.select(sa.func.pg_try_advisory_xact_lock(sa.func.hashtextextended(text("feed"), sa.text("1")))))
_position = sql(sa.select(_c.position).where(_c.feed == text("feed")))
_move = sql(
    insert(cursors)
    .values(feed=text("feed"), position=text("position"))
    .on_conflict_do_update(index_elements=["feed"], set_={"position": text("position")})
)


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
        async with self._db.transaction() as tx:
            mine = await tx.fetchval(_hold, feed=feed)
            yield Cursor(tx, feed, await tx.fetchval(_position, feed=feed) or "") if mine else None
