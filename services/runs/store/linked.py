"""Runs that hang together: a run and those above it, and the next run of its session."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from libs import events
from libs.store import Emitter, Row, Tx, param, sql
from services.runs.store.rows import Fields, run_of
from services.runs.store.tables import runs

r = runs.c

_next = sql(
    sa.select(r.id)
    .where(r.session_id == param("session_id", sa.Text), r.status == "queued")
    .order_by(r.created_at, r.id)
    .limit(1)
    .with_for_update()
)
_hand_on = sql(sa.update(runs).where(r.id == param("id", sa.Text)).values(behind=False, followed=True))

_lock = sql(sa.select(runs).where(r.id == param("id", sa.Text)).with_for_update())
_line = sa.select(r.id, r.parent_run_id).where(r.id == param("id", sa.Text)).cte("line", recursive=True)
_above = runs.alias("above")
_line = _line.union(sa.select(_above.c.id, _above.c.parent_run_id).join(_line, _above.c.id == _line.c.parent_run_id))
_lock_line = sql(
    sa.select(runs).where(r.id.in_(sa.select(_line.c.id))).order_by(r.depth, r.created_at, r.id).with_for_update()
)


async def lock_run(tx: Tx, run_id: str) -> Row | None:
    """A run row, locked. Parents are locked before their children, everywhere."""
    return await tx.fetchrow(_lock, id=run_id)


async def lock_line(tx: Tx, run_id: str) -> list[Row]:
    """A run and all runs above it, root first, locked."""
    return list(await tx.fetch(_lock_line, id=run_id))


async def hand_on(tx: Tx, row: Row | None) -> None:
    """A locked run has ended or parked: the next of its session may be claimed.

    Whoever queues a run behind another locks that one, so none is missed, and pays for it: others need no look.
    """
    if row is None or not row["followed"] or row["session_id"] is None:
        return
    following = await tx.fetchval(_next, session_id=row["session_id"])
    if following is not None:
        await tx.execute(_hand_on, id=following)


def emit(told: Emitter, rows: Sequence[Fields]) -> None:
    """Tell listeners the new state of these rows once the transaction has committed."""
    for row in rows:
        told.emit(*events.run_changed(run_of(row)))
