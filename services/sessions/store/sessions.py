"""Sessions: create, view, list, update."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from seed.sessions.v1 import sessions_pb2
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.errors import NotFound
from libs.store import Database, Outbox, Sql, param, sql
from services.sessions.domain.access import READER
from services.sessions.domain.paging import Cursor
from services.sessions.store import changes, repeats
from services.sessions.store.access import MEMBERSHIP, allowed, with_membership
from services.sessions.store.log import read_events
from services.sessions.store.rows import AGENT, NO_CHILDREN, NOW, SESSION, Row, number, session_of, text, touched
from services.sessions.store.tables import agent_members, agents, sessions
from services.sessions.store.turns import ROSTER

_s, _a, _m = sessions.c, agents.c, agent_members.c
_ACCOUNT = text("account")

_create = sql(
    insert(sessions)
    .from_select(
        ["id", "agent_id", "owner", "title", "title_source", "created_at", "updated_at"],
        # The agent's row is held, so that it cannot be deleted before this commits.
        sa.select(text("id"), _a.id, _a.owner, text("title"), text("title_source"), NOW, NOW)
        .where(_a.id == text("agent_id"))
        .with_for_update(read=True, key_share=True),
        include_defaults=False,
    )
    .returning(*_s, NO_CHILDREN)
)
_view = sql(
    sa.select(*SESSION, _a.public_read, _a.public_chat, *MEMBERSHIP, _a.definition, ROSTER)
    .select_from(with_membership(sessions.join(agents, _a.id == _s.agent_id)))
    .where(_s.id == text("id"))
)
_update = sql(
    sa.update(sessions)
    .where(_s.id == text("id"))
    .values(
        title=sa.func.coalesce(text("title"), _s.title),
        title_source=sa.case((text("title").is_(None), _s.title_source), else_="user"),
        model_override=sa.case(
            (param("overrides", sa.Boolean), param("model_override", sa.LargeBinary)), else_=_s.model_override
        ),
        **touched(sessions),
    )
    .returning(*SESSION)
)
_heads = sql(sa.select(_s.id, _s.last_seq, _s.version).where(_s.id == sa.any_(param("ids", ARRAY(sa.Text)))))

_BEFORE = sa.tuple_(_s.updated_at, _s.id) < sa.tuple_(number("updated_before"), text("id_before"))
_LATEST = (_s.updated_at.desc(), _s.id.desc())
_LIMIT = param("limit", sa.Integer)
_joined = sa.select(_m.agent_id).where(_m.account == _ACCOUNT, _m.status == "accepted").scalar_subquery()


def _page(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(*SESSION).where(_BEFORE, *where).order_by(*_LATEST).limit(_LIMIT)


def _all_of(account_filter: Sequence[sa.ColumnElement[bool]]) -> Sql:
    # Two index scans that stop after one page each, instead of one that sorts all there is.
    own = _page(_s.owner == _ACCOUNT, *account_filter)
    joined = _page(_s.agent_id.in_(_joined), *account_filter)
    both = sa.union_all(own.subquery("own").select(), joined.subquery("joined").select()).subquery("both")
    return sql(sa.select(both).order_by(both.c.updated_at.desc(), both.c.id.desc()).limit(_LIMIT))


_TOP = _s.parent_session_id.is_(None)
_pages: dict[tuple[str, bool], Sql] = {
    ("account", False): _all_of(()),
    ("account", True): _all_of((_TOP,)),
    ("agent", False): sql(_page(_s.agent_id == text("agent_id"))),
    ("agent", True): sql(_page(_s.agent_id == text("agent_id"), _TOP)),
    ("parent", False): sql(_page(_s.parent_session_id == text("parent_id"))),
    ("parent of agent", False): sql(
        _page(_s.parent_session_id == text("parent_id"), _s.agent_id == text("agent_id"))
    ),
}  # fmt: skip
_agents = sql(
    sa.select(*AGENT, *MEMBERSHIP)
    .select_from(with_membership(agents))
    .where(_a.id == sa.any_(param("ids", ARRAY(sa.Text))))
)
_of_agent = sql(sa.select(*SESSION).where(_s.agent_id == text("agent_id")).order_by(*_LATEST))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which sessions a page shows. Without agent and parent: those of agents the account owns or has joined."""

    agent_id: str = ""
    parent_id: str = ""
    top_level: bool = False


class SessionStore:
    """Sessions of one database. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, outbox: Outbox, *, now: Callable[[], int]) -> None:
        self._db, self._outbox, self._now = db, outbox, now

    async def create(self, agent_id: str, title: str | None, request: repeats.Request | None) -> str:
        """Open an idle session; returns its id, or that of an equal earlier request.

        `title` is provisional. Raises NotFound when the agent has been deleted, Conflict for a reused request id.
        """
        known = await repeats.created_before(self._db, request)
        if known is not None:
            return known
        now, session_id = self._now(), str(uuid.uuid4())
        try:
            async with self._outbox.transaction() as tx:
                row = await tx.fetchrow(
                    _create,
                    id=session_id,
                    agent_id=agent_id,
                    title=title,
                    title_source="" if title is None else "system",
                    now=now,
                )
                if row is None:
                    raise NotFound("Agent not found")
                await repeats.take(tx, request, session_id, now)
                session = session_of(row)
                changes.session(tx, session)
                changes.session_hint(tx, "session-created", session)
                return session_id
        except repeats.Repeated:
            return await repeats.created_first(self._db, request)

    async def view(self, account: str, session_id: str) -> tuple[Row, str]:
        """A session with its agent's definition and roster, and the account's role. Raises NotFound."""
        row = await self._db.fetchrow(_view, account=account, id=session_id)
        if row is None:
            raise NotFound("Session not found")
        return row, allowed(row, account, READER, "Session")

    async def events(self, session_id: str, after: int) -> list[pb.SessionEvent]:
        """The log in seq order, after a seq."""
        return await read_events(self._db, session_id, after)

    async def page(self, account: str, selection: Selection, cursor: Cursor, limit: int) -> list[Row]:
        """Up to `limit` sessions by (updated_at, id) descending, strictly after the cursor."""
        values: dict[str, Any] = {
            "updated_before": cursor.updated_before,
            "id_before": cursor.id_before,
            "limit": limit,
        }
        if selection.parent_id:
            # Children are listed whether or not the caller wants children elsewhere.
            kind, top = "parent", False
            values["parent_id"] = selection.parent_id
            if selection.agent_id:
                kind = "parent of agent"
                values["agent_id"] = selection.agent_id
        elif selection.agent_id:
            kind, top = "agent", selection.top_level
            values["agent_id"] = selection.agent_id
        else:
            kind, top = "account", selection.top_level
            values["account"] = account
        return list(await self._db.fetch(_pages[kind, top], **values))

    async def agents(self, account: str, ids: Sequence[str]) -> list[Row]:
        """Agent rows with the account's membership."""
        return list(await self._db.fetch(_agents, account=account, ids=list(ids))) if ids else []

    async def of_agent(self, agent_id: str) -> list[pb.Session]:
        """All sessions of an agent, newest change first."""
        return [session_of(row) for row in await self._db.fetch(_of_agent, agent_id=agent_id)]

    async def update(
        self, session_id: str, title: str | None, *, overrides: bool, model_override: bytes | None
    ) -> pb.Session:
        """Set a user's title, or with `overrides` the model override (JSON, None clears it). Raises NotFound."""
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(
                _update,
                id=session_id,
                title=title,
                overrides=overrides,
                model_override=model_override,
                now=self._now(),
            )
            if row is None:
                raise NotFound("Session not found")
            session = session_of(row)
            changes.session(tx, session)
            changes.session_hint(tx, "session-updated", session)
            return session

    async def heads(self, ids: Sequence[str]) -> list[sessions_pb2.SessionHead]:
        """Newest seq and version of those sessions that exist."""
        rows = await self._db.fetch(_heads, ids=list(ids))
        return [
            sessions_pb2.SessionHead(session_id=r["id"], last_seq=r["last_seq"], version=r["version"]) for r in rows
        ]
