"""Reading runs, and canceling them with everything below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from libs.store import Database, Outbox, Row, Sql, Tx, param, sql
from services.runs.store.endings import roll_up
from services.runs.store.linked import emit, hand_on, lock_line
from services.runs.store.tables import LIVE, runs

r = runs.c


_NOW = param("now", sa.BigInteger)
_child = runs.alias("child")
_children = sa.select(sa.func.count()).where(_child.c.parent_run_id == r.id).scalar_subquery().label("child_run_count")
_STATUS = param("status", sa.Text)
_any_status = sa.or_(_STATUS.is_(None), r.status == _STATUS)

_get = sql(sa.select(runs, _children).where(r.id == param("id", sa.Text)))
_newest = (r.created_at.desc(), r.id.desc())
_by_root = sql(
    sa.select(runs, _children)
    .where(r.root_run_id == param("id", sa.Text), _any_status)
    .order_by(r.created_at, r.id)
    .limit(param("limit", sa.Integer))
)
_by_session = sql(
    sa.select(runs, _children)
    .where(r.session_id == param("id", sa.Text), r.parent_run_id.is_(None), _any_status)
    .order_by(*_newest)
    .limit(param("limit", sa.Integer))
)
_by_agent = sql(
    sa.select(runs, _children)
    .where(r.agent_id == param("id", sa.Text), _any_status)
    .order_by(*_newest)
    .limit(param("limit", sa.Integer))
)


def _tree(roots: Any) -> Any:
    """Ids of the selected runs and of all their descendants."""
    tree = sa.select(r.id).where(roots).cte("tree", recursive=True)
    below = runs.alias("below")
    return tree.union(sa.select(below.c.id).join(tree, below.c.parent_run_id == tree.c.id))


def _lock(roots: Any) -> Sql:
    tree = _tree(roots)
    return sql(
        sa.select(runs)
        .where(r.id.in_(sa.select(tree.c.id)), r.status.in_(LIVE))
        .order_by(r.created_at, r.id)
        .with_for_update()
    )


def _lock_above(roots: Any) -> Sql:
    """The runs above the selected ones: they are locked first, for usage is added to them."""
    above = runs.alias("above")
    line = sa.select(r.parent_run_id.label("id")).where(roots, r.parent_run_id.is_not(None)).cte("line", recursive=True)
    line = line.union(
        sa.select(above.c.parent_run_id).join(line, above.c.id == line.c.id).where(above.c.parent_run_id.is_not(None))
    )
    return sql(sa.select(r.id).where(r.id.in_(sa.select(line.c.id))).order_by(r.created_at, r.id).with_for_update())


_lock_run = _lock(r.id == param("id", sa.Text))
_lock_session = _lock(sa.and_(r.session_id == param("id", sa.Text), r.status.in_(LIVE)))
_lock_agent = _lock(sa.and_(r.agent_id == param("id", sa.Text), r.status.in_(LIVE)))
_above_of = {
    _lock_run: _lock_above(r.id == param("id", sa.Text)),
    _lock_session: _lock_above(sa.and_(r.session_id == param("id", sa.Text), r.status.in_(LIVE))),
    _lock_agent: _lock_above(sa.and_(r.agent_id == param("id", sa.Text), r.status.in_(LIVE))),
}
_cancel_now = sql(
    sa.update(runs)
    .where(r.id == param("id", sa.Text))
    .values(
        status="canceled",
        cancel_requested=True,
        # Fences whatever a worker still holds.
        attempt=r.attempt + 1,
        wait=None,
        lease_until=None,
        gone=param("gone", sa.Text),
        finished_at=sa.func.greatest(r.created_at, r.started_at, _NOW),
        updated_at=sa.func.greatest(r.updated_at, _NOW),
        version=r.version + 1,
    )
    .returning(runs)
)
_request = sql(
    sa.update(runs).where(r.id == sa.any_(param("ids", ARRAY(sa.Text)))).values(cancel_requested=True).returning(runs)
)
# Titles and plans are made of what was said.
_untold = {"session_id": None, "title": "Deleted", "plan": None, "unmet_obligations": None}
_forget = {
    "session_id": sql(sa.update(runs).where(r.session_id == param("id", sa.Text)).values(**_untold)),
    "agent_id": sql(sa.update(runs).where(r.agent_id == param("id", sa.Text)).values(agent_id=None, **_untold)),
}


@dataclass(slots=True)
class Canceled:
    """What a cancel did: `ended` runs are canceled already, `asked` ones are ended by the worker that holds them."""

    ended: list[Row] = field(default_factory=list)
    asked: list[Row] = field(default_factory=list)

    @property
    def any(self) -> bool:
        """Whether anything was live."""
        return bool(self.ended or self.asked)


class Trees:
    """Reads and cancels. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, outbox: Outbox, now: Callable[[], int]) -> None:
        self._db, self._outbox, self._now = db, outbox, now

    async def get(self, run_id: str) -> Row | None:
        """One run with its `child_run_count`."""
        return await self._db.fetchrow(_get, id=run_id)

    async def by_root(self, root_run_id: str, status: str | None, limit: int) -> list[Row]:
        """Runs of a tree, oldest first."""
        return list(await self._db.fetch(_by_root, id=root_run_id, status=status, limit=limit))

    async def by_session(self, session_id: str, status: str | None, limit: int) -> list[Row]:
        """Root runs of a session, newest first."""
        return list(await self._db.fetch(_by_session, id=session_id, status=status, limit=limit))

    async def by_agent(self, agent_id: str, status: str | None, limit: int) -> list[Row]:
        """All runs of an agent, newest first."""
        return list(await self._db.fetch(_by_agent, id=agent_id, status=status, limit=limit))

    async def cancel_run(
        self, run_id: str, record: Callable[[Tx, Canceled], Awaitable[None]] | None = None
    ) -> Canceled:
        """Cancel a run and all its descendants in one transaction, to which `record` adds what is to be kept of it."""
        return await self._cancel(_lock_run, run_id, record)

    async def cancel_session(self, session_id: str) -> Canceled:
        """Cancel every live run of a session with its tree in one transaction."""
        return await self._cancel(_lock_session, session_id)

    async def _cancel(
        self, lock: Sql, subject: str, record: Callable[[Tx, Canceled], Awaitable[None]] | None = None
    ) -> Canceled:
        async with self._outbox.transaction() as tx:
            done = await self._end(tx, await self._tree(tx, lock, subject), lambda _: "")
            if record is not None:
                await record(tx, done)
            return done

    async def _tree(self, tx: Tx, lock: Sql, subject: str) -> list[Row]:
        """What is live of a tree, locked, the deepest first: usage goes up from there."""
        await tx.fetch(_above_of[lock], id=subject)
        found: dict[str, Row] = {}
        while True:
            # A run that parked while its row was waited for here has started children this statement did not see.
            rows = await tx.fetch(lock, id=subject)
            if all(row["id"] in found for row in rows):
                return sorted(found.values(), key=lambda row: -row["depth"])
            found = {row["id"]: row for row in rows}

    async def _end(self, tx: Tx, tree: Sequence[Row], gone: Callable[[Row], str]) -> Canceled:
        """Cancel these runs, the deepest first; `gone` names what a run lost that no worker may end any more."""
        result = Canceled()
        asked: list[str] = []
        below: defaultdict[str, list[Row]] = defaultdict(list)
        for row in tree:
            if row["id"] in below:
                # It still has to tell its own parent, so the news goes no further yet.
                await roll_up(tx, [row], *below.pop(row["id"]))
            lost = gone(row)
            if not lost and row["status"] not in ("queued", "waiting"):
                asked.append(row["id"])
                continue
            done = await tx.fetchrow(_cancel_now, id=row["id"], gone=lost, now=self._now())
            await hand_on(tx, done)
            if done is not None:
                result.ended.append(done)
                if done["parent_run_id"]:
                    below[done["parent_run_id"]].append(done)
        for parent, children in below.items():
            await roll_up(tx, await lock_line(tx, parent), *children)
        if asked:
            result.asked = list(await tx.fetch(_request, ids=asked))
        emit(tx, result.ended)
        return result

    async def detach(self, subject: str, value: str) -> Canceled:
        """Cancel at once what is live of a deleted session or agent, forget the reference, and titles and plans.

        `subject` is session_id or agent_id. A worker that still holds one of these runs is fenced off; runs below them
        that belong to others are canceled as always.
        """
        lock, gone = (_lock_session, "Session") if subject == "session_id" else (_lock_agent, "Agent")
        async with self._outbox.transaction() as tx:
            tree = await self._tree(tx, lock, value)
            result = await self._end(tx, tree, lambda row: gone if row[subject] == value else "")
            await tx.execute(_forget[subject], id=value)
        return result
