"""Who works: a row a worker process, kept alive by its heartbeats."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.store import Database, Row, Tx, param, sql
from services.runs.store.tables import workers

FORGOTTEN_LEASES = 4
"""Rows of workers that have not been heard of for so many leases are dropped."""

w = workers.c


_new = insert(workers).values(
    id=param("id", sa.Text),
    host=param("host", sa.Text),
    started_at=param("started_at"),
    seen_at=param("now"),
    slots=param("slots", sa.Integer),
    held=param("held", sa.Integer),
    draining=param("draining", sa.Boolean),
)
_beat = sql(
    _new.on_conflict_do_update(
        index_elements=[w.id],
        set_={
            "seen_at": _new.excluded.seen_at,
            "held": _new.excluded.held,
            "draining": sa.or_(w.draining, param("stopping", sa.Boolean)),
        },
    ).returning(w.draining)
)
_leave = sql(sa.delete(workers).where(w.id == param("id", sa.Text)))
_forget = sql(sa.delete(workers).where(w.seen_at < param("before")))
_list = sql(sa.select(workers).where(w.id > param("after", sa.Text)).order_by(w.id).limit(param("limit", sa.Integer)))
_drain = sql(
    sa.update(workers)
    .where(w.id == param("id", sa.Text))
    .values(draining=param("draining", sa.Boolean))
    .returning(workers)
)


class Workers:
    """The workers of one database. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, *, lease_ms: int, now: Callable[[], int]) -> None:
        self._db, self._lease, self._now = db, lease_ms, now

    def alive(self, row: Row) -> bool:
        """Whether a worker was heard of within a lease."""
        return row["seen_at"] > self._now() - self._lease

    async def beat(
        self, worker: str, *, host: str, started_at: int, slots: int, held: int, draining: bool, stopping: bool
    ) -> bool:
        """Say that a worker lives; tells whether it has been asked to drain.

        `draining` is what it was told last, for the case that its row has been dropped meanwhile; a worker that is
        `stopping` is draining for good.
        """
        return await self._db.fetchval(
            _beat,
            id=worker,
            host=host,
            started_at=started_at,
            now=self._now(),
            slots=slots,
            held=held,
            draining=draining or stopping,
            stopping=stopping,
        )

    async def leave(self, worker: str) -> None:
        """A worker has ended."""
        await self._db.execute(_leave, id=worker)

    async def forget(self) -> int:
        """Drop the rows of those that are gone; returns how many."""
        return await self._db.execute(_forget, before=self._now() - FORGOTTEN_LEASES * self._lease)

    async def page(self, after: str, limit: int) -> list[Row]:
        """Workers in the order of their ids, from the one after `after` on."""
        return await self._db.fetch(_list, after=after, limit=limit)

    async def drain(self, tx: Tx, worker: str, *, draining: bool) -> Row | None:
        """Ask a worker to claim no more, or to claim again; None when there is no such worker."""
        return await tx.fetchrow(_drain, id=worker, draining=draining)
