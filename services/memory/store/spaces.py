"""Spaces: one row an agent, by which its writes are ordered."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.errors import NotFound
from libs.store import param, sql
from libs.store.database import Row, Tx
from services.memory.store.tables import spaces

_s = spaces.c
_new = insert(spaces).values(agent_id=param("agent_id", sa.Text), owner=param("owner", sa.Text))
# An update, though of nothing, locks the row and gives it as it is once the lock is ours.
_lock = sql(
    _new.on_conflict_do_update(index_elements=["agent_id"], set_={"owner": _s.owner}).returning(
        _s.files, _s.bytes, _s.dropped_at
    )
)


async def lock(tx: Tx, agent_id: str, owner: str) -> Row:
    """Take an agent's Space for this transaction; made when there is none. Returns its `files` and `bytes`.

    Raises NotFound `Agent not found` for an agent that was deleted since the caller's access was found out.
    """
    row = await tx.fetchrow(_lock, agent_id=agent_id, owner=owner)
    if row is None or row["dropped_at"] is not None:
        raise NotFound("Agent not found")
    return row
