"""Spaces: one row an agent, which every write to it locks."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs import events
from libs.errors import NotFound
from libs.protocol.files import check_storage
from libs.store import Database, Reader, Tx, param, sql
from services.memory.store.params import AGENT
from services.memory.store.tables import spaces

_s = spaces.c
_OWNER = param("owner", sa.Text)

_hold = sql(
    insert(spaces)
    .values(agent_id=AGENT, owner=_OWNER)
    # An update that changes nothing locks the row.
    .on_conflict_do_update(index_elements=["agent_id"], set_={"agent_id": _s.agent_id})
    .returning(_s.files, _s.bytes, _s.dropped_at)
)
_used = sql(sa.select(sa.func.coalesce(sa.func.sum(_s.bytes), 0).cast(sa.BigInteger)).where(_s.owner == _OWNER))
_grow = sql(
    sa.update(spaces)
    .where(_s.agent_id == AGENT)
    .values(files=_s.files + param("files", sa.BigInteger), bytes=_s.bytes + param("bytes", sa.BigInteger))
)


@dataclass(frozen=True, slots=True)
class Space:
    """An agent's space and the account it belongs to."""

    agent_id: str
    owner: str


class SpaceStore:
    """Spaces of one database. `storage_bytes` is what an account's files may come to (0: any)."""

    def __init__(self, db: Database, *, storage_bytes: int) -> None:
        self._db, self._most = db, storage_bytes

    async def room(self, owner: str) -> int | None:
        """Bytes that the account may still store; None for any number."""
        return max(0, self._most - await self._db.fetchval(_used, owner=owner)) if self._most else None

    async def check_room(self, reader: Reader, owner: str, size: int) -> None:
        """Whether the account may store `size` bytes more. Raises TooLarge `Account storage is full`.

        Writes to several agents of one account at once may go beyond by what they bring.
        """
        if self._most:
            check_storage(await reader.fetchval(_used, owner=owner), size, self._most)


async def hold(tx: Tx, space: Space) -> None:
    """Lock an agent's space until this transaction ends; it is made at first. Raises NotFound for a deleted agent."""
    row = await tx.fetchrow(_hold, agent_id=space.agent_id, owner=space.owner)
    if row is None or row["dropped_at"] is not None:
        raise NotFound("Agent not found")


async def grow(tx: Tx, space: Space, files: int, size: int) -> None:
    """Count files and bytes that a held space has more, or less."""
    await tx.execute(_grow, agent_id=space.agent_id, files=files, bytes=size)


def changed(tx: Tx, space: Space) -> None:
    """Tell that the memory has changed."""
    tx.emit(*events.account_hint(space.owner, "agent-memory-changed", agent_id=space.agent_id))
