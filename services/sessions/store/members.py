"""Members, invitations and public access of agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from seed.sessions.v1 import members_pb2 as mpb
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import insert

from libs.audit import Actor
from libs.errors import Invalid, NotFound
from libs.store import Database, Outbox, Tx, param, sql
from libs.store.audit import Audit
from services.sessions.domain.access import OWNER, effective_role
from services.sessions.store import changes
from services.sessions.store.rows import AGENT, NOW, Row, agent_of, text, touched
from services.sessions.store.tables import agent_members, agents

_a, _m = agents.c, agent_members.c
_AGENT_ID, _ACCOUNT = text("agent_id"), text("account")
_one = sa.and_(_m.agent_id == _AGENT_ID, _m.account == _ACCOUNT)

_invites = sql(
    sa.select(_m.agent_id, _m.role, _m.created_at, _m.updated_at, _a.name, _a.owner)
    .select_from(agent_members.join(agents, _a.id == _m.agent_id))
    .where(_m.account == _ACCOUNT, _m.status == "pending")
    .order_by(_m.updated_at.desc(), _m.agent_id.desc())
)
_members = sql(sa.select(*_m).where(_m.agent_id == _AGENT_ID).order_by(_m.status, _m.updated_at.desc(), _m.account))
_agent = sql(sa.select(*AGENT).where(_a.id == _AGENT_ID))
# Held, so that the agent cannot be deleted before this commits.
_held = sql(sa.select(_a.owner).where(_a.id == _AGENT_ID).with_for_update(read=True, key_share=True))
_invited = insert(agent_members).values(
    agent_id=_AGENT_ID,
    account=_ACCOUNT,
    role=text("role"),
    status="pending",
    created_at=NOW,
    updated_at=NOW,
)
_invite = sql(
    _invited.on_conflict_do_update(
        index_elements=[_m.agent_id, _m.account],
        set_={"role": _invited.excluded.role, "updated_at": sa.func.greatest(_m.updated_at, NOW)},
    ).returning(*_m)
)
_remove = sql(sa.delete(agent_members).where(_one).returning(_m.status))
_accept = sql(
    sa.update(agent_members)
    .where(_one, _m.status == "pending")
    .values(status="accepted", accepted_at=NOW, updated_at=sa.func.greatest(_m.updated_at, NOW))
    .returning(_m.role, _m.status)
)
_decline = sql(sa.delete(agent_members).where(_one, _m.status == "pending").returning(_m.account))
_public_read = sql(
    sa.update(agents)
    .where(_a.id == _AGENT_ID)
    .values(
        public_read=param("on", sa.Boolean),
        public_chat=sa.and_(_a.public_chat, param("on", sa.Boolean)),
        **touched(agents),
    )
    .returning(*AGENT)
)
_public_chat = sql(
    sa.update(agents)
    .where(_a.id == _AGENT_ID, sa.or_(_a.public_read, sa.not_(param("on", sa.Boolean))))
    .values(public_chat=param("on", sa.Boolean), **touched(agents))
    .returning(*AGENT)
)

MEMBERS, INVITES = "agent-collaborators-changed", "agent-invites-changed"


class MemberStore:
    """Memberships of one database. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, outbox: Outbox, audit: Audit, *, now: Callable[[], int]) -> None:
        self._db, self._outbox, self._audit, self._now = db, outbox, audit, now

    async def invites(self, account: str) -> list[mpb.Invite]:
        """Pending invitations of an account, newest change first."""
        return [
            mpb.Invite(
                agent_id=row["agent_id"],
                agent_name=row["name"],
                owner_account_id=row["owner"],
                role=row["role"],
                created_at=row["created_at"],
                updated_at=row["updated_at"],
            )
            for row in await self._db.fetch(_invites, account=account)
        ]

    async def collaborators(self, agent_id: str, role: str) -> mpb.ListAgentCollaboratorsResponse:
        """The owner, then members; pending ones only for the owner. Raises NotFound."""
        agent = await self._db.fetchrow(_agent, agent_id=agent_id)
        if agent is None:
            raise NotFound("Agent not found")
        owner = mpb.Collaborator(
            account_id=agent["owner"],
            role=OWNER,
            status="accepted",
            created_at=agent["created_at"],
            updated_at=agent["created_at"],
        )
        rows = await self._db.fetch(_members, agent_id=agent_id)
        shown = [_collaborator(row) for row in rows if role == OWNER or row["status"] == "accepted"]
        return mpb.ListAgentCollaboratorsResponse(
            agent_id=agent_id,
            public_read=agent["public_read"],
            public_chat=agent["public_chat"],
            collaborators=[owner, *shown],
        )

    async def invite(self, by: Actor, owner: str, agent_id: str, account: str, role: str) -> mpb.Collaborator:
        """Invite an account, or give a member or invited account another role. Raises NotFound."""
        async with self._outbox.transaction() as tx:
            await self._hold(tx, agent_id)
            row = await tx.fetchrow(_invite, agent_id=agent_id, account=account, role=role, now=self._now())
            if row is None:
                raise RuntimeError("an upserted row is returned")
            what = "member.invite" if row["status"] == "pending" else "member.set-role"
            await self._note(tx, by, what, owner, agent_id, f"{account} {role}")
            self._tell(tx, owner, agent_id, account)
            return _collaborator(row)

    async def remove(self, by: Actor, owner: str, agent_id: str, account: str) -> None:
        """Remove a member or an invitation. Raises NotFound `Collaborator not found`."""
        async with self._outbox.transaction() as tx:
            if await tx.fetchval(_remove, agent_id=agent_id, account=account) is None:
                raise NotFound("Collaborator not found")
            await self._note(tx, by, "member.remove", owner, agent_id, account)
            self._tell(tx, owner, agent_id, account)

    async def accept(self, by: Actor, agent_id: str) -> pb.Agent:
        """Accept the acting account's invitation. Raises NotFound `Agent invitation not found`."""
        account = by.account
        async with self._outbox.transaction() as tx:
            member = await tx.fetchrow(_accept, agent_id=agent_id, account=account, now=self._now())
            agent = None if member is None else await tx.fetchrow(_agent, agent_id=agent_id)
            if member is None or agent is None:
                raise NotFound("Agent invitation not found")
            await self._note(tx, by, "member.accept", agent["owner"], agent_id, f"{account} {member['role']}")
            self._tell(tx, agent["owner"], agent_id, account)
            seen = {**agent, "member_role": member["role"], "member_status": member["status"]}
            return agent_of(agent, effective_role(account, seen))

    async def decline(self, by: Actor, agent_id: str) -> None:
        """Decline the acting account's invitation. Raises NotFound `Agent invitation not found`."""
        account = by.account
        async with self._outbox.transaction() as tx:
            gone = await tx.fetchval(_decline, agent_id=agent_id, account=account)
            agent = None if gone is None else await tx.fetchrow(_agent, agent_id=agent_id)
            if agent is None:
                raise NotFound("Agent invitation not found")
            await self._note(tx, by, "member.decline", agent["owner"], agent_id, account)
            self._tell(tx, agent["owner"], agent_id, account)

    async def set_public_read(self, by: Actor, agent_id: str, on: bool) -> pb.Agent:
        """Open or close public reading; closing it closes public chat too. Raises NotFound."""
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(_public_read, agent_id=agent_id, on=on, now=self._now())
            if row is None:
                raise NotFound("Agent not found")
            await self._note(tx, by, "agent.set-public-read", row["owner"], agent_id, "on" if on else "off")
            return self._opened(tx, row)

    async def set_public_chat(self, by: Actor, agent_id: str, on: bool) -> pb.Agent:
        """Open or close public chat. Raises NotFound, Invalid while public reading is off."""
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(_public_chat, agent_id=agent_id, on=on, now=self._now())
            if row is None:
                await self._hold(tx, agent_id)
                raise Invalid("Enable public access before enabling public chat")
            await self._note(tx, by, "agent.set-public-chat", row["owner"], agent_id, "on" if on else "off")
            return self._opened(tx, row)

    async def _note(self, tx: Tx, by: Actor, action: str, owner: str, agent_id: str, detail: str) -> None:
        await self._audit.record(tx, by, action, agent_id, account=owner, detail=detail)

    async def _hold(self, tx: Tx, agent_id: str) -> None:
        if await tx.fetchval(_held, agent_id=agent_id) is None:
            raise NotFound("Agent not found")

    def _opened(self, tx: Tx, row: Row) -> pb.Agent:
        changes.agent(tx, agent_of(row))
        changes.agent_hint(tx, MEMBERS, row["owner"], row["id"])
        return agent_of(row, OWNER)

    def _tell(self, tx: Tx, owner: str, agent_id: str, account: str) -> None:
        changes.agent_hint(tx, MEMBERS, owner, agent_id)
        changes.private_hint(tx, INVITES, owner, agent_id, account)


def _collaborator(row: Any) -> mpb.Collaborator:
    return mpb.Collaborator(
        account_id=row["account"],
        role=row["role"],
        status=row["status"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
