"""What operators see and do: runs of all accounts, in pages; queueing a run again; depths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from libs.audit import Actor
from libs.errors import Conflict, NotFound
from libs.store import Database, Outbox, Row, Sql, Tx, param, sql
from libs.store.audit import Audit
from services.runs.store.linked import emit, lock_run
from services.runs.store.tables import LISTED_ACCOUNT, LIVE, TERMINAL, runs
from services.runs.store.trees import Canceled, Trees
from services.runs.store.workers import Workers

STATUSES = (*LIVE, *TERMINAL)

r = runs.c


_NEWEST = ((1 << 63) - 1, "")


def _statuses(*allowed: str) -> list[Any]:
    # The constants tell the planner which partial index has them all.
    return [
        r.status.in_([sa.literal_column(f"'{status}'") for status in allowed]),
        r.status == sa.any_(param("statuses", ARRAY(sa.Text))),
    ]


def _page(kind: str, *, of_account: bool) -> Sql:
    """A page of runs in any status, in live ones (`live`), in one (`failed`, `canceled`) or in others (`some`)."""
    where: list[Any] = [sa.tuple_(r.created_at, r.id) < sa.tuple_(param("before"), param("before_id", sa.Text))]
    if of_account:
        where.append(param("account", sa.Text) == LISTED_ACCOUNT)
    if kind in ("failed", "canceled"):
        where.append(r.status == sa.literal_column(f"'{kind}'"))
    elif kind == "some":
        where += _statuses(*STATUSES)
    elif kind == "live":
        # Live runs are few: sorting them is less than walking through all that has ended since.
        live = sa.select(r.id, r.created_at).where(*where, *_statuses(*LIVE)).cte("live").prefix_with("MATERIALIZED")
        first = (
            sa.select(live.c.id).order_by(live.c.created_at.desc(), live.c.id.desc()).limit(param("limit", sa.Integer))
        )
        where = [r.id.in_(first)]
    newest = (r.created_at.desc(), r.id.desc())
    return sql(sa.select(runs).where(*where).order_by(*newest).limit(param("limit", sa.Integer)))


def _kind(statuses: Sequence[str]) -> str:
    if not statuses:
        return "any"
    if set(statuses) <= set(LIVE):
        return "live"
    return statuses[0] if len(statuses) == 1 and statuses[0] in ("failed", "canceled") else "some"


_pages = {
    (of_account, kind): _page(kind, of_account=of_account)
    for of_account in (False, True)
    for kind in ("any", "live", "failed", "canceled", "some")
}
_one = sql(sa.select(runs).where(r.id == param("id", sa.Text)))
_requeue = sql(
    sa.update(runs)
    .where(r.id == param("id", sa.Text))
    .values(
        status="queued",
        lease_until=None,
        worker=None,
        not_before=param("now"),
        updated_at=sa.func.greatest(r.updated_at, param("now")),
        version=r.version + 1,
    )
    .returning(runs)
)
_totals = sql(
    sa.select(r.queue, r.status, sa.func.count().label("runs"), sa.func.min(r.created_at).label("oldest_created_at"))
    .where(r.status.in_(LIVE))
    .group_by(r.queue, r.status)
    .order_by(r.queue, r.status)
)
_by_account = (
    sa.select(
        r.account,
        r.queue,
        r.status,
        sa.func.count().label("runs"),
        sa.func.min(r.created_at).label("oldest_created_at"),
        sa.func.sum(sa.func.count().filter(r.status == "queued")).over(partition_by=r.account).label("queued"),
    )
    .where(r.status.in_(LIVE))
    .group_by(r.account, r.queue, r.status)
    .subquery("depths")
)
_ranked = sa.select(
    _by_account, sa.func.dense_rank().over(order_by=(_by_account.c.queued.desc(), _by_account.c.account)).label("place")
).subquery("ranked")
_accounts = sql(
    sa.select(_ranked)
    .where(_ranked.c.place <= param("accounts"))
    .order_by(_ranked.c.place, _ranked.c.queue, _ranked.c.status)
)


class Operations:
    """Runs of one database as operators see them. `now` gives Unix milliseconds.

    What they change stands in the audit, with the effect.
    """

    def __init__(
        self, db: Database, outbox: Outbox, trees: Trees, workers: Workers, audit: Audit, now: Callable[[], int]
    ) -> None:
        self._db, self._outbox, self._now = db, outbox, now
        self._trees, self._workers, self._audit = trees, workers, audit

    async def page(
        self, statuses: Sequence[str], account: str, before: tuple[int, str] | None, limit: int
    ) -> list[Row]:
        """Runs in these statuses (empty: any) of an account (empty: all), newest first, before (created_at, id)."""
        kind = _kind(statuses)
        at, run_id = before or _NEWEST
        values: dict[str, Any] = {"before": at, "before_id": run_id, "limit": limit}
        if account:
            values["account"] = account
        if kind in ("live", "some"):
            values["statuses"] = list(statuses)
        return await self._db.fetch(_pages[bool(account), kind], **values)

    async def get(self, run_id: str) -> Row:
        """One run. Raises NotFound."""
        row = await self._db.fetchrow(_one, id=run_id)
        if row is None:
            raise NotFound("Run not found")
        return row

    async def requeue(self, run_id: str, by: Actor) -> Row:
        """Let a run be claimed now; a worker that holds it is fenced off.

        Raises NotFound, and Conflict for a run that has ended or is parked.
        """
        async with self._outbox.transaction() as tx:
            held = await lock_run(tx, run_id)
            if held is None:
                raise NotFound("Run not found")
            if held["status"] in TERMINAL:
                raise Conflict(f"Run has ended: {held['status']}")
            if held["status"] == "waiting":
                raise Conflict("Run waits for the runs that it delegated")
            row = await tx.fetchrow(_requeue, id=run_id, now=self._now())
            if row is None:
                raise RuntimeError("a locked row cannot vanish")
            await self._audit.record(tx, by, "run.requeue", run_id, account=row["account"], detail=held["status"])
            emit(tx, [row])
            return row

    async def cancel(self, run_id: str, by: Actor) -> Canceled:
        """Cancel a run and everything below it. Raises NotFound."""
        row = await self.get(run_id)

        async def record(tx: Tx, done: Canceled) -> None:
            detail = f"{len(done.ended)} ended, {len(done.asked)} asked"
            await self._audit.record(tx, by, "run.cancel", run_id, account=row["account"], detail=detail)

        return await self._trees.cancel_run(run_id, record)

    async def drain(self, worker: str, by: Actor, *, draining: bool) -> Row:
        """Ask a worker to claim no more, or to claim again. Raises NotFound."""
        async with self._db.transaction() as tx:
            row = await self._workers.drain(tx, worker, draining=draining)
            if row is None:
                raise NotFound("Worker not found")
            await self._audit.record(tx, by, "worker.drain" if draining else "worker.resume", worker)
            return row

    async def depths(self, accounts: int) -> tuple[list[Row], list[Row]]:
        """Counts by queue and status, and by account for those `accounts` accounts that have the most queued runs."""
        return await self._db.fetch(_totals), await self._db.fetch(_accounts, accounts=accounts)
