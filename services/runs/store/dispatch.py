"""Who is next: claims that are fair by account, and what a queued run waits for.

A claim takes from the accounts with the fewest live runs, each run it takes counted; between equals from the one that
has gone longest without beginning a run, then the older run. Within an account interactive goes before background,
older before younger. A run is left where it is while its session executes another or has an older one queued, while
its time has not come, and while its account is at a limit.

The rules are in the functions `runs_due` (migration 0009) and `claim_runs` (0003). Claims go one at a time, behind an
advisory lock that ends with the statement: so no two of them can exceed a limit together. A claim is on disk before its
work begins, but not before the lock is free. It looks at the ACCOUNTS waiting accounts that are next in the ring of all
of them, and at no run that was queued behind another of its session (store/queue.py), which bounds what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from libs.store import Database, Row, param, sql
from services.runs.domain.waiting import HOUR_MS, QUEUED, Facts, Limits, Reason, why
from services.runs.store.tables import runs, workers

ACCOUNTS = 200
"""Most accounts that one claim looks at. With more waiting, the next claims look at the others."""

_UNLIMITED = 1 << 40

r = runs.c


_claim = sql(
    sa.select(
        sa.func.claim_runs(
            param("worker", sa.Text),
            param("slots"),
            param("now"),
            param("lease_until"),
            param("accounts"),
            param("running"),
            param("background"),
            param("hourly"),
        ).table_valued(*(sa.column(column.name, column.type) for column in runs.columns), name="claimed")
    )
)

# A commit that waits for the disk, and for everything that was committed before it.
_settle = sql(sa.select(sa.func.pg_logical_emit_message(sa.true(), "seed-agents", "")))

_live, _earlier, _held, _begun = (runs.alias(name) for name in ("live", "earlier", "held", "begun"))
_LIVE = ("claimed", "running")
_account_live = (
    sa.select(
        sa.func.count().label("live"),
        sa.func.count().filter(_held.c.queue == 1).label("live_background"),
    )
    .where(_held.c.account == r.account, _held.c.status.in_(_LIVE))
    .lateral("share")
)
_ahead = sa.func.coalesce(
    sa.select(_live.c.id)
    .where(_live.c.session_id == r.session_id, _live.c.kind == "agent", _live.c.status.in_(_LIVE))
    .limit(1)
    .scalar_subquery(),
    sa.select(_earlier.c.id)
    .where(
        _earlier.c.session_id == r.session_id,
        _earlier.c.status == "queued",
        sa.tuple_(_earlier.c.created_at, _earlier.c.id) < sa.tuple_(r.created_at, r.id),
    )
    .order_by(_earlier.c.created_at.desc(), _earlier.c.id.desc())
    .limit(1)
    .scalar_subquery(),
    "",
)
# The youngest beginning that has to be an hour old before there is room for another.
_full_since = (
    sa.select(_begun.c.started_at)
    .where(param("hourly") > 0, _begun.c.account == r.account, _begun.c.started_at > param("now") - HOUR_MS)
    .order_by(_begun.c.started_at.desc())
    .offset(sa.func.greatest(param("hourly") - 1, 0))
    .limit(1)
    .scalar_subquery()
)
_workers = (
    sa.select(sa.func.count())
    .select_from(workers)
    .where(~workers.c.draining, workers.c.seen_at > param("alive_since"))
    .scalar_subquery()
)
_facts = sql(
    sa.select(
        r.id,
        r.queue,
        r.not_before,
        r.started_at,
        _account_live.c.live,
        _account_live.c.live_background,
        _ahead.label("ahead"),
        _full_since.label("full_since"),
        _workers.label("workers"),
    )
    .select_from(runs.join(_account_live, sa.true()))
    .where(r.id == sa.any_(param("ids", ARRAY(sa.Text))), r.status == "queued")
)
_due = sa.func.runs_due(
    sa.func.array(sa.select(sa.func.runs_accounts("", param("most"))).scalar_subquery()),
    param("now"),
    param("most"),
    param("most"),
    param("most"),
    sa.cast(0, sa.BigInteger),
).table_valued("id", "load", "served", "created_at", name="due")
_order = sa.select(
    _due.c.id,
    sa.func.row_number().over(order_by=(_due.c.load, _due.c.served, _due.c.created_at, _due.c.id)).label("place"),
).subquery("ordered")
_place = sql(sa.select(_order.c.place).where(_order.c.id == param("id", sa.Text)))


class Dispatch:
    """Claims within limits. `now` gives Unix milliseconds; a worker counts that was heard of within `lease_ms`."""

    def __init__(self, db: Database, limits: Limits, *, lease_ms: int, now: Callable[[], int]) -> None:
        self._db, self._limits, self._lease, self._now = db, limits, lease_ms, now

    async def claim(self, worker: str, slots: int) -> list[Row]:
        """Claim up to `slots` runs; a worker claims only what it begins at once, so they are running then."""
        now = self._now()
        rows = await self._db.fetch(
            _claim,
            worker=worker,
            slots=slots,
            now=now,
            lease_until=now + self._lease,
            accounts=ACCOUNTS,
            running=self._limits.running,
            background=self._limits.background,
            hourly=self._limits.hourly,
        )
        if rows:
            # A claim that a crash of the database undid would be followed by another with the same number.
            await self._db.fetchval(_settle)
        return rows

    async def reasons(self, ids: Sequence[str]) -> dict[str, Reason]:
        """Why these runs wait, by id; those that are not queued are left out."""
        now = self._now()
        rows = await self._db.fetch(
            _facts, ids=list(ids), now=now, hourly=self._limits.hourly, alive_since=now - self._lease
        )
        return {row["id"]: why(_facts_of(row), self._limits, now) for row in rows}

    async def place(self, run_id: str) -> int:
        """The place of a queued run in the order of claims, from 1, were there no limits; 0 when it is not due."""
        return await self._db.fetchval(_place, id=run_id, now=self._now(), most=_UNLIMITED) or 0

    async def explain(self, run_id: str) -> tuple[Reason | None, int]:
        """Why a run waits and, when only others go before it, its place; None when it is not queued."""
        reason = (await self.reasons([run_id])).get(run_id)
        return reason, await self.place(run_id) if reason is not None and reason.name == QUEUED else 0


def _facts_of(row: Row) -> Facts:
    return Facts(
        background=row["queue"] == 1,
        begun=row["started_at"] is not None,
        not_before=row["not_before"],
        ahead=row["ahead"],
        live=row["live"],
        live_background=row["live_background"],
        hourly_until=0 if row["full_since"] is None else row["full_since"] + HOUR_MS,
        workers=row["workers"],
    )
