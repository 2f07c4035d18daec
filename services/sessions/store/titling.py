"""The few attempts that a session has at getting a title by itself (runtime.md, section 8)."""

from __future__ import annotations

import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb

from libs.errors import NotFound
from libs.store import Database, param, sql
from services.sessions.store.rows import EVENT, event_of, text
from services.sessions.store.tables import session_events, session_turns, sessions

_s, _t, _e = sessions.c, session_turns.c, session_events.c

# Nothing that readers see changes, and what a crash gives back is one more attempt.
_take = sql(
    sa.update(sessions)
    .where(
        _s.id == sa.select(_t.session_id).where(_t.run_id == text("run_id")).scalar_subquery(),
        _s.title_source.in_(["", "system"]),
        _s.title_attempts < param("most"),
    )
    .values(title_attempts=_s.title_attempts + 1)
    .returning(_s.id)
)
_exists = sql(sa.select(_s.id).join(session_turns, _t.session_id == _s.id).where(_t.run_id == text("run_id")))
_first = sql(sa.select(*EVENT).where(_e.session_id == text("id")).order_by(_e.seq).limit(param("events")))


class TitleStore:
    """Attempts at titles of one database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def take(self, run_id: str, most: int, events: int) -> list[pb.SessionEvent] | None:
        """Take one of `most` attempts: the first events of the log; None when there is none, or a name.

        Raises NotFound when the run's session is gone.
        """
        row = await self._db.fetchrow(_take, run_id=run_id, most=most)
        if row is not None:
            return [event_of(event) for event in await self._db.fetch(_first, id=row["id"], events=events)]
        if await self._db.fetchrow(_exists, run_id=run_id) is None:
            raise NotFound("Session not found")
        return None
