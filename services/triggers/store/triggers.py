"""Triggers: list, view, create, change, delete."""

from __future__ import annotations

import sqlalchemy as sa

from libs.store import Database, Row, sql
from services.triggers.store.rows import text
from services.triggers.store.tables import triggers

_t = triggers.c

_listed = sql(sa.select(*_t).where(_t.agent_id == text("agent_id")).order_by(_t.updated_at.desc(), _t.id))


class TriggerStore:
    """Triggers of one database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def of_agent(self, agent_id: str) -> list[Row]:
        """All triggers of an agent, newest change first."""
        return list(await self._db.fetch(_listed, agent_id=agent_id))
