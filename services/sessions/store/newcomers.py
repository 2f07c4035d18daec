"""New agents whose first trigger is still to be made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.store import Database, Tx, sql
from services.sessions.store.rows import NOW, number, text
from services.sessions.store.sweep import later
from services.sessions.store.tables import newcomers

_n = newcomers.c
_ROWS = 100

_new = sql(
    insert(newcomers).values(
        agent_id=text("agent_id"),
        owner=text("owner"),
        name=text("name"),
        signing_account=text("signing_account"),
        next_at=number("next_at"),
    )
)
_due = (
    sa.select(_n.agent_id).where(_n.next_at <= NOW).order_by(_n.next_at).limit(_ROWS).with_for_update(skip_locked=True)
)
_take = sql(
    sa.update(newcomers)
    .where(_n.agent_id.in_(_due))
    .values(next_at=later(number("first_ms"), _n.tries), tries=_n.tries + 1)
    .returning(_n.agent_id, _n.owner, _n.name, _n.signing_account)
)
_greeted = sql(sa.delete(newcomers).where(_n.agent_id == text("agent_id")))


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A new agent that signs as an account."""

    agent_id: str
    owner: str
    name: str
    signing_account: str


class NewcomerStore:
    """Newcomers of one database. `first_ms` is how long who creates an agent has to do it."""

    def __init__(self, db: Database, *, now: Callable[[], int], first_ms: int) -> None:
        self._db, self._now, self._first_ms = db, now, first_ms

    async def add(self, tx: Tx, newcomer: Newcomer) -> None:
        """In the transaction that makes the agent."""
        await tx.execute(
            _new,
            agent_id=newcomer.agent_id,
            owner=newcomer.owner,
            name=newcomer.name,
            signing_account=newcomer.signing_account,
            next_at=self._now() + self._first_ms,
        )

    async def due(self) -> list[Newcomer]:
        """Those nobody has greeted in time, each to one process; they come again after a growing pause."""
        rows = await self._db.fetch(_take, now=self._now(), first_ms=self._first_ms)
        return [Newcomer(row["agent_id"], row["owner"], row["name"], row["signing_account"]) for row in rows]

    async def greeted(self, newcomer: Newcomer) -> None:
        """The trigger is made."""
        await self._db.execute(_greeted, agent_id=newcomer.agent_id)
