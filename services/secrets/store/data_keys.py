"""Wrapped data keys, one an account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.audit import Actor
from libs.store import Database, sql
from libs.store.audit import Audit
from services.secrets.domain.rotation import Batch
from services.secrets.domain.vault import WrappedKey
from services.secrets.store.tables import data_keys

Wrap = Callable[[str, WrappedKey], Awaitable[WrappedKey | None]]


class DataKeyRows:
    """Finds an account's data key, or makes the first."""

    def __init__(self, db: Database, audit: Audit) -> None:
        self._db, self._audit = db, audit
        key = sa.select(data_keys.c.key_id, data_keys.c.wrapped)
        self._get = sql(key.where(data_keys.c.account == sa.bindparam("account")))
        self._add = sql(
            insert(data_keys)
            .values({c.name: sa.bindparam(c.name) for c in data_keys.c})
            .on_conflict_do_nothing(index_elements=["account"])
        )
        self._older = sql(
            sa.select(data_keys.c.account, data_keys.c.key_id, data_keys.c.wrapped)
            .where(
                data_keys.c.key_id != sa.bindparam("primary"),
                data_keys.c.key_id == sa.any_(sa.bindparam("known", type_=ARRAY(sa.Text))),
                data_keys.c.account > sa.bindparam("after"),
            )
            .order_by(data_keys.c.account)
            .limit(sa.bindparam("most", type_=sa.BigInteger))
            # Two that rotate at once share the work.
            .with_for_update(skip_locked=True)
        )
        self._replace = sql(
            sa.update(data_keys)
            .where(data_keys.c.account == sa.bindparam("account"))
            .values(key_id=sa.bindparam("key_id"), wrapped=sa.bindparam("wrapped"))
        )
        self._counts = sql(
            sa.select(data_keys.c.key_id, sa.func.count().label("keys"))
            .group_by(data_keys.c.key_id)
            .order_by(data_keys.c.key_id)
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

    async def rewrap(self, by: Actor, primary: str, known: list[str], after: str, most: int, wrap: Wrap) -> Batch:
        """Re-wrap up to `most` keys of accounts behind `after` that another of the ring's `known` keys wraps."""
        done = 0
        async with self._db.transaction() as tx:
            rows = await tx.fetch(self._older, primary=primary, known=known, after=after, most=most)
            for row in rows:
                new = await wrap(row["account"], WrappedKey(row["key_id"], row["wrapped"]))
                if new is not None:
                    values = {"account": row["account"], "key_id": new.key_id, "wrapped": new.wrapped}
                    done += await tx.execute(self._replace, **values)
            if done:
                await self._audit.record(tx, by, "data-keys.rewrap", primary, account="", detail=f"{done} keys")
        return Batch(done, len(rows) - done, rows[-1]["account"] if len(rows) == most else "")

    async def wrapped_by(self) -> dict[str, int]:
        """Number of data keys by id of the ring's key that wraps them."""
        return {row["key_id"]: row["keys"] for row in await self._db.fetch(self._counts)}

    async def key_ids(self) -> list[str]:
        """Ids of all keys of the ring that wrap something."""
        return [row["key_id"] for row in await self._db.fetch(self._key_ids)]
