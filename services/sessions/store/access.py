"""Who the caller is to an agent, in one round trip."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from libs.errors import NotFound
from libs.store import Database, Sql, sql
from services.sessions.domain import access
from services.sessions.store.rows import SESSION, Row, text
from services.sessions.store.tables import agent_members, agents, sessions

_a, _m, _s = agents.c, agent_members.c, sessions.c

MEMBERSHIP = (_m.role.label("member_role"), _m.status.label("member_status"))
_COLUMNS = (_a.id.label("agent_id"), _a.owner, _a.public_read, _a.public_chat, *MEMBERSHIP)


def with_membership(tables: sa.FromClause) -> sa.Join:
    """Joined with the membership of the account `:account`, if it has one."""
    return tables.outerjoin(agent_members, sa.and_(_m.agent_id == _a.id, _m.account == text("account")))


_agent = sa.select(*_COLUMNS).select_from(with_membership(agents)).where(_a.id == text("id"))
_by_agent, _defined = sql(_agent), sql(_agent.add_columns(_a.definition))
_by_session = sql(
    sa.select(*_COLUMNS)
    .select_from(with_membership(sessions.join(agents, _a.id == _s.agent_id)))
    .where(_s.id == text("id"))
)
_with_session = sql(
    sa.select(*_COLUMNS, *(column.label(f"session_{column.name}") for column in SESSION))
    .select_from(with_membership(sessions.join(agents, _a.id == _s.agent_id)))
    .where(_s.id == text("id"))
)
_memberships = sql(
    sa.select(_m.agent_id, _a.owner, _m.role)
    .select_from(agent_members.join(agents, _a.id == _m.agent_id))
    .where(_m.account == text("account"), _m.status == "accepted")
)


@dataclass(frozen=True, slots=True)
class Access:
    """Who an account is to an agent."""

    agent_id: str
    owner: str
    role: str
    member: bool
    definition: bytes = b""


def allowed(row: Row, account: str, need: str, noun: str) -> str:
    """Role of the account on the agent of a row that has its access columns. Raises as `domain.access.require`."""
    role = access.effective_role(account, row)
    access.require(role, need, noun)
    return role


class AccessStore:
    """Answers for the calling account; nothing is cached, so a revocation holds from the next call on."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def agent(self, account: str, agent_id: str, need: str = access.READER, noun: str = "Agent") -> Access:
        """Access to an agent. Raises NotFound and Forbidden as `domain.access.require`."""
        return await self._resolve(_by_agent, account, agent_id, need, noun)

    async def session(self, account: str, session_id: str, need: str = access.READER, noun: str = "Session") -> Access:
        """Access to the agent of a session. Raises as `agent`."""
        return await self._resolve(_by_session, account, session_id, need, noun)

    async def open_session(self, account: str, session_id: str, need: str) -> tuple[Access, Row]:
        """Access to the agent of a session, with the session's row as it is now. Raises as `agent`."""
        row = await self._db.fetchrow(_with_session, account=account, id=session_id)
        if row is None:
            raise NotFound("Session not found")
        role = allowed(row, account, need, "Session")
        found = Access(row["agent_id"], row["owner"], role, access.is_member(account, row))
        return found, {column.name: row[f"session_{column.name}"] for column in SESSION}

    async def defined(self, account: str, agent_id: str, need: str = access.READER, noun: str = "Agent") -> Access:
        """Access to an agent, with its definition. Raises as `agent`."""
        return await self._resolve(_defined, account, agent_id, need, noun)

    async def memberships(self, account: str) -> list[Row]:
        """agent_id, owner and role of the agents of others that the account has joined."""
        return list(await self._db.fetch(_memberships, account=account))

    async def _resolve(self, statement: Sql, account: str, subject: str, need: str, noun: str) -> Access:
        row = await self._db.fetchrow(statement, account=account, id=subject)
        if row is None:
            raise NotFound(f"{noun} not found")
        role = allowed(row, account, need, noun)
        definition = row["definition"] if statement is _defined else b""
        return Access(row["agent_id"], row["owner"], role, access.is_member(account, row), definition)
