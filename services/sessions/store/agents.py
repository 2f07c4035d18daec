"""Agents: create, read, replace the definition."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import insert

from libs.errors import NotFound
from libs.store import Database, Outbox, param, sql
from libs.wire import decode, encode
from services.sessions.domain.access import READER, effective_role
from services.sessions.store import changes, repeats
from services.sessions.store.access import MEMBERSHIP, allowed, with_membership
from services.sessions.store.newcomers import Newcomer, NewcomerStore
from services.sessions.store.rows import AGENT, NOW, agent_of, text, touched
from services.sessions.store.tables import agent_members, agents

_a, _m = agents.c, agent_members.c
_ID = text("id")

_create = sql(
    insert(agents)
    .values(
        id=_ID,
        owner=text("owner"),
        name=text("name"),
        definition=param("definition", sa.LargeBinary),
        created_at=NOW,
        updated_at=NOW,
    )
    .returning(*AGENT)
)
_get = sql(sa.select(*AGENT, *MEMBERSHIP).select_from(with_membership(agents)).where(_a.id == _ID))
# Owned and joined are looked up apart, each by its own index. Nobody is a member of an agent of their own.
_own = sa.select(*AGENT, sa.null().label("member_role"), sa.null().label("member_status")).where(
    _a.owner == text("account")
)
_joined = (
    sa.select(*AGENT, *MEMBERSHIP)
    .join(agent_members, _m.agent_id == _a.id)
    .where(_m.account == text("account"), _m.status == "accepted")
)
_both = sa.union_all(_own, _joined).subquery("listed")
_list = sql(sa.select(_both).order_by(_both.c.updated_at.desc(), _both.c.id.desc()))
_lock = sql(sa.select(_a.definition).where(_a.id == _ID).with_for_update(key_share=True))
_update = sql(
    sa.update(agents)
    .where(_a.id == _ID)
    .values(name=text("name"), definition=param("definition", sa.LargeBinary), **touched(agents))
    .returning(*AGENT)
)

Definition = dict[str, Any]


class AgentStore:
    """Agents of one database. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, outbox: Outbox, newcomers: NewcomerStore, *, now: Callable[[], int]) -> None:
        self._db, self._outbox, self._newcomers, self._now = db, outbox, newcomers, now

    async def created_before(self, request: repeats.Request | None) -> str | None:
        """Id of the agent that an equal request made. Raises Conflict for a reused request id."""
        return await repeats.created_before(self._db, request)

    async def create(
        self, owner: str, definition: Definition, request: repeats.Request | None, signs_as: str
    ) -> tuple[str, Newcomer | None]:
        """Store a new agent; returns its id, or that of an equal request that was quicker. Raises Conflict.

        An agent that `signs_as` an account is a newcomer: its first trigger is still to be made.
        """
        now, agent_id = self._now(), str(uuid.uuid4())
        try:
            async with self._outbox.transaction() as tx:
                await repeats.take(tx, request, agent_id, now)
                row = await tx.fetchrow(
                    _create,
                    id=agent_id,
                    owner=owner,
                    name=definition["name"],
                    definition=encode(definition),
                    now=now,
                )
                if row is None:
                    raise RuntimeError("an inserted row is returned")
                changes.agent(tx, agent_of(row))
                changes.agent_hint(tx, "agent-created", owner, agent_id)
                newcomer = Newcomer(agent_id, owner, definition["name"], signs_as) if signs_as else None
                if newcomer is not None:
                    await self._newcomers.add(tx, newcomer)
                return agent_id, newcomer
        except repeats.Repeated:
            return await repeats.created_first(self._db, request), None

    async def get(self, account: str, agent_id: str) -> pb.Agent:
        """An agent as an account that may read it sees it. Raises NotFound."""
        row = await self._db.fetchrow(_get, id=agent_id, account=account)
        if row is None:
            raise NotFound("Agent not found")
        return agent_of(row, allowed(row, account, READER, "Agent"))

    async def listed(self, account: str) -> list[pb.Agent]:
        """The agents an account owns or has joined, newest change first."""
        rows = await self._db.fetch(_list, account=account)
        return [agent_of(row, effective_role(account, row)) for row in rows]

    async def update(
        self, agent_id: str, role: str, definition: Definition, check: Callable[[Definition], None]
    ) -> pb.Agent:
        """Replace the definition; `check` gets the one that stands and may refuse. Raises NotFound."""
        async with self._outbox.transaction() as tx:
            stored = await tx.fetchval(_lock, id=agent_id)
            if stored is None:
                raise NotFound("Agent not found")
            check(decode(stored))
            row = await tx.fetchrow(
                _update, id=agent_id, name=definition["name"], definition=encode(definition), now=self._now()
            )
            if row is None:
                raise NotFound("Agent not found")
            changes.agent(tx, agent_of(row))
            changes.agent_hint(tx, "agent-updated", row["owner"], agent_id)
            return agent_of(row, role)
