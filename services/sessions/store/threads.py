"""An account's own sessions, as its agents read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY

from libs.errors import NotFound
from libs.protocol.limits import THREAD_SEARCH_EVENTS, THREAD_SEARCH_SESSIONS
from libs.store import Database, param, sql
from services.sessions.domain import threads as rules
from services.sessions.store.rows import EVENT, SESSION, Row, event_of, session_of, text
from services.sessions.store.tables import agents, session_events, sessions

_s, _a, _e = sessions.c, agents.c, session_events.c
_AGENT = text("agent_id")
_MINE = (_s.owner == text("account"), sa.or_(_AGENT == "", _s.agent_id == _AGENT))
_LATEST = (_s.updated_at.desc(), _s.id.desc())

_named = sa.select(*SESSION, _a.name.label("agent_name")).join(agents, _a.id == _s.agent_id)
_list = sql(_named.where(*_MINE).order_by(*_LATEST).limit(param("limit", sa.Integer)))
_some = sql(
    _named.where(_s.owner == text("account"), _s.id == sa.any_(param("ids", ARRAY(sa.Text)))).order_by(*_LATEST)
)
_titles = sql(sa.select(_s.id, _s.title, _s.description).where(*_MINE).order_by(*_LATEST).limit(THREAD_SEARCH_SESSIONS))
_recent = (
    sa.select(_s.id, _s.updated_at).where(*_MINE).order_by(*_LATEST).limit(THREAD_SEARCH_SESSIONS).subquery("recent")
)
_ends = (
    sa.select(_e.session_id, _e.seq, _e.payload)
    .where(_e.session_id == _recent.c.id)
    .order_by(_e.seq.desc())
    .limit(THREAD_SEARCH_EVENTS)
    .lateral("ends")
)
_newest = (
    sa.select(_ends.c.session_id, _ends.c.seq, _ends.c.payload)
    .select_from(_recent.join(_ends, sa.true()))
    .order_by(_recent.c.updated_at.desc(), _recent.c.id.desc(), _ends.c.seq.desc())
    .limit(THREAD_SEARCH_EVENTS)
    .subquery("newest")
)
_said = sql(
    sa.select(_newest.c.session_id, _newest.c.payload).where(
        sa.func.strpos(sa.func.lower(sa.func.convert_from(_newest.c.payload, "UTF8")), text("needle")) > 0
    )
)
_one = sql(sa.select(*SESSION).where(_s.owner == text("account"), _s.id == text("id")))
_end = sql(
    sa.select(*EVENT).where(_e.session_id == text("id")).order_by(_e.seq.desc()).limit(param("events", sa.Integer))
)
_count = sql(sa.select(sa.func.count()).select_from(sessions).where(_s.owner == text("account"), _s.agent_id == _AGENT))


@dataclass(frozen=True, slots=True)
class Found:
    """A session of a listing; `snippet` is where the text occurs in it."""

    session: pb.Session
    agent_name: str
    snippet: str = ""


class ThreadStore:
    """Sessions of one database, by their owner."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def list(self, account: str, agent_id: str, limit: int) -> list[Found]:
        """The account's sessions, those of one agent unless `agent_id` is empty, newest change first."""
        return [_found(row) for row in await self._db.fetch(_list, account=account, agent_id=agent_id, limit=limit)]

    async def search(self, account: str, agent_id: str, query: str, limit: int) -> list[Found]:
        """Those that hold a text in their title, description or messages, whatever its case; newest change first."""
        query = query.lower()
        of: dict[str, Any] = {"account": account, "agent_id": agent_id}
        snippets: dict[str, str] = {}
        for row in await self._db.fetch(_said, needle=rules.needle(query), **of):
            session_id = row["session_id"]
            if session_id not in snippets and (around := rules.snippet(row["payload"], query)):
                snippets[session_id] = around
        titles = await self._db.fetch(_titles, **of)
        ids = [r["id"] for r in titles if r["id"] in snippets or rules.names(query, r["title"], r["description"])]
        rows = await self._db.fetch(_some, account=account, ids=ids[:limit])
        return [_found(row, snippets.get(row["id"], "")) for row in rows]

    async def read(self, account: str, session_id: str, events: int) -> tuple[pb.Session, list[pb.SessionEvent]]:
        """A session of the account and its newest events, in seq order. Raises NotFound."""
        row = await self._db.fetchrow(_one, account=account, id=session_id)
        if row is None:
            raise NotFound("Session not found")
        end = await self._db.fetch(_end, id=session_id, events=events)
        return session_of(row), [event_of(event) for event in reversed(end)]

    async def count(self, account: str, agent_id: str) -> int:
        """How many sessions an agent of the account has."""
        return await self._db.fetchval(_count, account=account, agent_id=agent_id)


def _found(row: Row, snippet: str = "") -> Found:
    return Found(session_of(row), row["agent_name"], snippet)
