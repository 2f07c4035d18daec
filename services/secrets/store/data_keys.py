"""Wrapped data keys, one an account."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.store import Database, sql
from services.secrets.domain.vault import WrappedKey
from services.secrets.store.tables import data_keys


class DataKeyRows:
    """Finds an account's data key, or makes the first."""

    def __init__(self, db: Database) -> None:
        self._db = db
        key = sa.select(data_keys.c.key_id, data_keys.c.wrapped)
        self._get = sql(key.where(data_keys.c.account == sa.bindparam("account")))
        self._add = sql(
            insert(data_keys)
            .values({c.name: sa.bindparam(c.name) for c in data_keys.c})
            .on_conflict_do_nothing(index_elements=["account"])
        )
        self._key_ids = sql(sa.select(data_keys.c.key_id).distinct())

    async def get_or_add(self, account: str, make: Callable[[str], WrappedKey], now_ms: int) -> WrappedKey:
        """The account's key; the one `make` gives when there was none. Of two made at once the first one counts."""
        row = await self._db.fetchrow(self._get, account=account)
        if row is None:
            made = make(account)
            values = {"account": account, "key_id": made.key_id, "wrapped": made.wrapped, "created_at": now_ms}
            if await self._db.execute(self._add, **values):
                return made
            row = await self._db.fetchrow(self._get, account=account)
            assert row is not None, "data keys are never deleted"
        return WrappedKey(row["key_id"], row["wrapped"])

    async def key_ids(self) -> list[str]:
        """Ids of all keys of the ring that wrap something."""
        return [row["key_id"] for row in await self._db.fetch(self._key_ids)]
