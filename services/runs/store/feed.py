"""What triggers reads of runs that have ended, and the signals that it delivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.errors import Invalid
from libs.store import Database, Outbox, Row, Tx, param, sql
from services.runs.store.linked import emit, lock_run
from services.runs.store.queue import BUDGET_PAUSE, RESUME, waits_for
from services.runs.store.tables import ended_runs, runs, signal_deliveries

_e, _d = ended_runs.c, signal_deliveries.c
_KEEP_MS = 7 * 86_400_000

# All that is older than any running transaction is there and stays as it is.
_COMPLETE = _e.xid < sa.literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint", sa.BigInteger)
_PLACE = sa.tuple_(_e.xid, _e.n)
_AFTER = sa.tuple_(param("xid"), param("n"))

_ended = sql(
    sa.select(_e.xid, _e.n, *runs.c)
    .select_from(ended_runs.join(runs, runs.c.id == _e.run_id))
    .where(_COMPLETE, _PLACE > _AFTER)
    .order_by(_e.xid, _e.n)
    .limit(param("limit", sa.Integer))
)
_dealt_with = sql(sa.delete(ended_runs).where(_PLACE <= _AFTER))
_forget = sql(sa.delete(signal_deliveries).where(_d.created_at < param("before")))
_known = sql(sa.select(_d.run_id).where(_d.id == param("id", sa.Text)))
_deliver = sql(
    insert(signal_deliveries)
    .values(id=param("id", sa.Text), run_id=param("run_id", sa.Text), created_at=param("now"))
    .on_conflict_do_nothing()
)
_lock_delivery = sql(
    sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(param("id", sa.Text), sa.text("7"))))
)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the order of ended runs."""

    xid: int = 0
    n: int = 0

    @classmethod
    def parse(cls, text: str) -> Position:
        """The place that `str` gave; the beginning for an empty text. Raises Invalid."""
        if not text:
            return cls()
        xid, _, n = text.partition("-")
        if not (xid.isascii() and xid.isdigit() and n.isascii() and n.isdigit() and len(text) < 40):
            raise Invalid("This position was never given")
        return cls(int(xid), int(n))

    def __str__(self) -> str:
        return f"{self.xid}-{self.n}"


class Feed:
    """Ended runs and delivered signals of one database. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, outbox: Outbox, now: Callable[[], int]) -> None:
        self._db, self._outbox, self._now = db, outbox, now
        self._dealt_with = Position()

    async def ended(self, after: Position, limit: int) -> list[tuple[Position, Row]]:
        """The runs that have ended after a place, in order; what comes before it is forgotten."""
        if after > self._dealt_with:
            self._dealt_with = after
            await self._db.execute(_dealt_with, xid=after.xid, n=after.n)
            await self._db.execute(_forget, before=self._now() - _KEEP_MS)
        rows = await self._db.fetch(_ended, xid=after.xid, n=after.n, limit=limit)
        return [(Position(row["xid"], row["n"]), row) for row in rows]

    async def deliver(self, delivery_id: str, account: str, run_id: str) -> str | None:
        """Wake a run of an account, once by the delivery; the run's id, or None when it does not wait for a signal.

        Runs of this release wait for a signal only when their budget paused them, and such a run is woken by its name.
        """
        async with self._outbox.transaction() as tx:
            await tx.fetch(_lock_delivery, id=delivery_id)
            known = await tx.fetchrow(_known, id=delivery_id)
            if known is not None:
                return known["run_id"]
            woken = await self._wake(tx, account, run_id) if run_id else None
            await tx.execute(_deliver, id=delivery_id, run_id=woken, now=self._now())
            return woken

    async def _wake(self, tx: Tx, account: str, run_id: str) -> str | None:
        row = await lock_run(tx, run_id)
        if row is None or row["account"] != account or row["status"] != "waiting" or waits_for(row) != BUDGET_PAUSE:
            return None
        row = await tx.fetchrow(RESUME, id=run_id, now=self._now())
        emit(tx, [row] if row is not None else [])
        return run_id
