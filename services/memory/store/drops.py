"""What deleted agents leave behind."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.store import Database, param, sql
from services.memory.store import uploads
from services.memory.store.objects import release
from services.memory.store.params import AGENT, NOW
from services.memory.store.spaces import Space
from services.memory.store.tables import memory_entries, spaces, tool_documents

KEEP_MS = 7 * 86_400_000
"""How long it is remembered that an agent was deleted: longer than any call may take."""

_s = spaces.c
# Locks the space, as every write does.
_dropped = sql(
    insert(spaces)
    .values(agent_id=AGENT, owner=param("owner", sa.Text), dropped_at=NOW)
    .on_conflict_do_update(
        index_elements=["agent_id"],
        set_={"files": 0, "bytes": 0, "dropped_at": sa.func.coalesce(_s.dropped_at, NOW)},
    )
)
_files = sql(sa.delete(memory_entries).where(memory_entries.c.agent_id == AGENT).returning(memory_entries.c.blob))
_tools = sql(sa.delete(tool_documents).where(tool_documents.c.agent_id == AGENT))
_forget = sql(sa.delete(spaces).where(_s.dropped_at < param("before", sa.BigInteger)))


class DropStore:
    """Deletes all there is of an agent. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, *, now: Callable[[], int]) -> None:
        self._db, self._now = db, now

    async def drop(self, space: Space) -> None:
        """From the commit of this on nothing is written for the agent any more. Idempotent."""
        async with self._db.transaction() as tx:
            await tx.execute(_dropped, agent_id=space.agent_id, owner=space.owner, now=self._now())
            await uploads.discard_of(tx, space.agent_id)
            await release(tx, [row["blob"] for row in await tx.fetch(_files, agent_id=space.agent_id)])
            await tx.execute(_tools, agent_id=space.agent_id)

    async def forget(self) -> None:
        """Forget agents that were deleted long ago."""
        await self._db.execute(_forget, before=self._now() - KEEP_MS)
