"""What a process left undone: turns whose run was never started, deletions runs has not heard of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from libs.store import Database, sql
from services.sessions.domain.turns import PARKED
from services.sessions.store.deletions import Deletion
from services.sessions.store.rows import NOW, Row, number
from services.sessions.store.tables import deletions, session_turns
from services.sessions.store.turns import BEGUN_AGAIN_MS, PARKED_AGAIN_MS

_ROWS = 100
_BACKOFF_MAX_MS = 60_000
_KEEP_GONE_MS = 86_400_000

_t, _d = session_turns.c, deletions.c


def later(first_ms: Any, tries: Any) -> Any:
    """When to try again what was tried so often: a pause that grows from `first_ms` to a minute."""
    doubled = sa.cast(first_ms, sa.BigInteger) * sa.cast(sa.func.power(2, sa.func.least(tries, 16)), sa.BigInteger)
    return NOW + sa.func.least(_BACKOFF_MAX_MS, doubled)


_due_turns = (
    sa.select(_t.run_id)
    .where(_t.next_start_at <= NOW, _t.state.in_(["live", PARKED]))
    .order_by(_t.next_start_at)
    .limit(_ROWS)
    .with_for_update(skip_locked=True)
)
_turns = sql(
    sa.update(session_turns)
    .where(_t.run_id.in_(_due_turns))
    .values(
        next_start_at=sa.case(
            (_t.state == PARKED, NOW + PARKED_AGAIN_MS),
            (_t.begun, NOW + BEGUN_AGAIN_MS),
            else_=later(number("first_ms"), _t.starts),
        ),
        starts=_t.starts + 1,
    )
    .returning(*_t)
)
_due_deletions = (
    sa.select(_d.id).where(_d.next_at <= NOW).order_by(_d.next_at).limit(_ROWS).with_for_update(skip_locked=True)
)
_deletions = sql(
    sa.update(deletions)
    .where(_d.id.in_(_due_deletions))
    .values(next_at=later(number("first_ms"), _d.tries), tries=_d.tries + 1)
    .returning(_d.id, _d.kind, _d.owner)
)
_forget = sql(sa.delete(session_turns).where(_t.state == "gone", _t.next_start_at < number("before")))


class SweepStore:
    """Takes due rows, each by one process at a time, and puts them off with a growing pause of up to a minute."""

    def __init__(self, db: Database, *, now: Callable[[], int], sweep_ms: int) -> None:
        self._db, self._now, self._sweep_ms = db, now, sweep_ms

    async def turns(self) -> list[Row]:
        """Live turns to be announced to runs again."""
        return list(await self._db.fetch(_turns, now=self._now(), first_ms=self._sweep_ms))

    async def deletions(self) -> list[Deletion]:
        """Deletions to be told to runs again."""
        rows = await self._db.fetch(_deletions, now=self._now(), first_ms=self._sweep_ms)
        return [Deletion(row["id"], row["kind"], row["owner"]) for row in rows]

    async def forget(self) -> None:
        """Drop what is kept of turns whose session or agent was deleted long ago."""
        await self._db.execute(_forget, before=self._now() - _KEEP_GONE_MS)
