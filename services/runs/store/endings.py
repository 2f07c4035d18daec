"""The end of a held run, and what it tells the runs above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from libs.store import Draft, Outbox, Row, Single, Tx, param, relaxed, sql
from services.runs.domain import usage
from services.runs.store.linked import emit, hand_on, lock_line, lock_run
from services.runs.store.tables import TERMINAL, runs

r = runs.c

_NOW = param("now", sa.BigInteger)

MINE = sa.and_(
    r.id == param("id", sa.Text),
    r.attempt == param("attempt", sa.BigInteger),
    r.status.in_(["claimed", "running"]),
)
"""A run that is held by the claim with this attempt."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a claim ends for good. Documents are JSON of the public types; `output` is what a delegated run gives."""

    status: str
    assistant_event_id: str = ""
    error: bytes | None = None
    error_status: int = 0
    usage: bytes | None = None
    gone: str = ""
    output: bytes | None = None
    unmet_obligations: bytes | None = None
    continued_to: str = ""
    """The session that answers in the place of the run's."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A held run: its id, the attempt of the claim, and the run that delegated it."""

    run_id: str
    attempt: int
    parent_run_id: str | None = None


_ended = (
    sa.update(runs)
    .where(MINE)
    .values(
        status=param("status", sa.Text),
        error=param("error", sa.LargeBinary),
        error_status=param("error_status", sa.Integer),
        assistant_event_id=param("assistant_event_id", sa.Text),
        gone=param("gone", sa.Text),
        continued_to=param("continued_to", sa.Text),
        usage=sa.func.coalesce(param("usage", sa.LargeBinary), r.usage),
        output=param("output", sa.LargeBinary),
        unmet_obligations=param("unmet_obligations", sa.LargeBinary),
        lease_until=None,
        finished_at=sa.func.greatest(r.started_at, _NOW),
        updated_at=sa.func.greatest(r.updated_at, r.started_at, _NOW),
        version=r.version + 1,
    )
)


# Whether the account has another run, which may have waited for this one: for its session or its share.
_WAITS = sa.literal_column(
    "exists (select 1 from runs q where q.account = runs.account and q.status = 'queued')", sa.Boolean
).label("account_waits")
_WAITS_OF_DONE = sa.literal_column(
    "exists (select 1 from runs q where q.account = done.account and q.status = 'queued')", sa.Boolean
).label("account_waits")
# What was lost of it, the next claim finds recorded in the session's ledger and ends again.
_complete = sql(_ended.returning(runs, _WAITS, relaxed()))
_children_usage = sql(
    sa.update(runs).where(r.id == param("id", sa.Text)).values(children_usage=param("usage", sa.LargeBinary))
)


def _single(outbox: Outbox) -> Single:
    """The end of a run that nothing has happened to since it was claimed, that nobody waits for and nobody follows."""
    done = (
        _ended.where(
            r.version == param("seen_version", sa.BigInteger),
            r.children_usage.is_not_distinct_from(param("seen_children_usage", sa.LargeBinary)),
            r.parent_run_id.is_(None),
            r.followed.is_(False),
        )
        .returning(runs)
        .cte("done")
    )
    return outbox.single(sa.select(done, _WAITS_OF_DONE, relaxed()), sa.exists(sa.select(done.c.id)))


async def _add_usage(tx: Tx, parent: Row, children: Sequence[Row]) -> None:
    total = parent["children_usage"]
    for child in children:
        total = usage.rolled_up(total, child["usage"], child["children_usage"])
    await tx.execute(_children_usage, id=parent["id"], usage=total)


async def roll_up(tx: Tx, line: Sequence[Row], *children: Row) -> None:
    """Add the usage of runs of one parent that have become terminal, their own children's included, to the parent's.

    `line` are the runs above it, root first, as they were when this transaction locked them. Those that have ended have
    told their own parents already, so what comes later is added there too.
    """
    for above in reversed(line):
        await _add_usage(tx, above, children)
        if above["status"] not in TERMINAL:
            return


class Endings:
    """Ends held runs. `now` gives Unix milliseconds."""

    def __init__(self, outbox: Outbox, now: Callable[[], int]) -> None:
        self._outbox, self._now = outbox, now
        self._single = _single(outbox)

    async def complete(self, claim: Claim, ending: Ending, seen: Row | None) -> Row | None:
        """End a held run; None when the claim is no longer ours. `seen` is its row as it was claimed, if at hand."""
        now = self._now()
        if claim.parent_run_id:
            return await self._child(claim, claim.parent_run_id, ending, now)
        row = await self._at_once(claim, ending, now, seen) if seen is not None else None
        if row is not None:
            return row
        async with self._outbox.transaction() as tx:
            return await self._told(tx, claim, ending, now, [])

    async def _at_once(self, claim: Claim, ending: Ending, now: int, seen: Row) -> Row | None:
        if seen["followed"]:
            return None
        after = {
            **seen,
            **asdict(ending),
            "usage": ending.usage if ending.usage is not None else seen["usage"],
            "finished_at": max(seen["started_at"], now),
            "updated_at": max(seen["updated_at"], seen["started_at"], now),
            "version": seen["version"] + 1,
        }
        draft = Draft()
        emit(draft, [after])
        was = {"seen_version": seen["version"], "seen_children_usage": seen["children_usage"]}
        return await self._outbox.send(self._single, draft, **_values(claim, ending, now), **was)

    async def _child(self, claim: Claim, parent_run_id: str, ending: Ending, now: int) -> Row | None:
        # In a canceled tree those above have ended already.
        if ending.status != "canceled":
            async with self._outbox.transaction() as tx:
                # Only the parent is locked, so that ends in other branches of the tree do not wait for each other.
                parent = await lock_run(tx, parent_run_id)
                if parent is None or parent["status"] not in TERMINAL:
                    return await self._told(tx, claim, ending, now, [] if parent is None else [parent])
        async with self._outbox.transaction() as tx:
            # Who has ended has told its own parent already: what comes later is added all the way up, locked from the
            # root on.
            return await self._told(tx, claim, ending, now, await lock_line(tx, parent_run_id))

    async def _told(self, tx: Tx, claim: Claim, ending: Ending, now: int, line: Sequence[Row]) -> Row | None:
        """End a run and add its usage to those of `line` that are to know of it (see `roll_up`)."""
        row = await tx.fetchrow(_complete, **_values(claim, ending, now))
        await hand_on(tx, row)
        if row is not None:
            await roll_up(tx, line, row)
            emit(tx, [row])
        return row


def _values(claim: Claim, ending: Ending, now: int) -> dict[str, Any]:
    return {"id": claim.run_id, "attempt": claim.attempt, "now": now, **asdict(ending)}
