"""The table of objects that nothing owns, and its statements."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.store import Database, Tx, param, sql

ROWS = 100
"""Objects that one `take` gives at most."""


def loose_objects_table(metadata: sa.MetaData) -> sa.Table:
    """The table every service with objects declares in its own schema. Times are Unix milliseconds."""
    table = sa.Table(
        "loose_blobs",
        metadata,
        # Key of an object that nothing owns: not yet, or not any more.
        sa.Column("key", sa.Text(collation="C"), primary_key=True),
        # The sweep deletes it then; once it is taken it gets no owner.
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("taken", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    sa.Index("loose_blobs_due", table.c.due_at)
    return table


class LooseObjects:
    """Statements on such a table, compiled once."""

    def __init__(self, table: sa.Table) -> None:
        c, key, keys = table.c, param("key", sa.Text), param("keys", ARRAY(sa.Text))
        now, due_at = param("now", sa.BigInteger), param("due_at", sa.BigInteger)
        self._begin = sql(insert(table).values(key=key, due_at=due_at))
        self._keep = sql(sa.delete(table).where(c.key == key, sa.not_(c.taken)))
        self._drop = sql(sa.update(table).where(c.key == key).values(due_at=now))
        self._release = sql(
            insert(table).from_select(
                ["key", "due_at"], sa.select(sa.func.unnest(keys), sa.literal_column("0")), include_defaults=False
            )
        )
        due = sa.select(c.key).where(c.due_at <= now).order_by(c.due_at).limit(ROWS).with_for_update(skip_locked=True)
        again = now + param("again_ms", sa.BigInteger)
        taken = sa.update(table).where(c.key.in_(due)).values(taken=True, due_at=again)
        self._take = sql(taken.returning(c.key))
        self._gone = sql(sa.delete(table).where(c.key == sa.any_(keys)))

    async def begin(self, db: Database, key: str, due_at: int) -> None:
        """An object is about to be written, and stays loose until `due_at` at most."""
        await db.execute(self._begin, key=key, due_at=due_at)

    async def keep(self, tx: Tx, key: str) -> bool:
        """The object gets an owner by this transaction; False when it is being deleted."""
        return bool(await tx.execute(self._keep, key=key))

    async def drop(self, db: Database, key: str, now: int) -> None:
        """The object gets no owner any more, if it is still loose."""
        await db.execute(self._drop, key=key, now=now)

    async def release(self, tx: Tx, keys: Sequence[str]) -> None:
        """What owned these objects is deleted by this transaction."""
        if keys:
            await tx.execute(self._release, keys=list(keys))

    async def take(self, db: Database, now: int, again_ms: int) -> list[str]:
        """Some objects to be deleted, each by one process at a time; left undone they are due again later."""
        return [row["key"] for row in await db.fetch(self._take, now=now, again_ms=again_ms)]

    async def gone(self, db: Database, keys: Sequence[str]) -> None:
        """These objects are deleted."""
        await db.execute(self._gone, keys=list(keys))
