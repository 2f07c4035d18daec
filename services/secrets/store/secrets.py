"""Secret rows."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.audit import Actor
from libs.store import Database, sql
from libs.store.audit import Audit
from libs.store.database import Tx
from services.secrets.domain.secrets import Metadata, StoredSecret
from services.secrets.store.tables import secrets


class SecretRows:
    """Writes sealed values."""

    def __init__(self, db: Database, audit: Audit) -> None:
        self._db, self._audit = db, audit
        new = insert(secrets).values({c.name: sa.bindparam(c.name) for c in secrets.c})
        changed = ("sealed", "metadata", "is_account_key", "needs_reauth")
        self._put = sql(
            new.on_conflict_do_update(
                index_elements=["account", "name"],
                set_={
                    **{name: new.excluded[name] for name in changed},
                    # Later than before even when both fall into one millisecond, or the clock went back.
                    "updated_at": sa.func.greatest(new.excluded.updated_at, secrets.c.updated_at + 1),
                },
            ).returning(secrets.c.id, secrets.c.created_at, secrets.c.updated_at)
        )

    async def put(
        self, new_id: str, by: Actor, name: str, sealed: bytes, metadata: Metadata, now_ms: int
    ) -> StoredSecret:
        """Insert, or replace value and metadata; id and creation time of an existing row stay."""
        async with self._db.transaction() as tx:
            stored = await self.write(tx, new_id, by.account, name, sealed, metadata, now_ms)
            await self._audit.record(tx, by, "secret.set", name)
        return stored

    async def write(
        self, tx: Tx, new_id: str, account: str, name: str, sealed: bytes, metadata: Metadata, now_ms: int
    ) -> StoredSecret:
        """The same within a transaction, whose owner records who did it."""
        row = await tx.fetchrow(
            self._put,
            id=new_id,
            account=account,
            name=name,
            sealed=sealed,
            metadata=metadata.encoded,
            is_account_key=metadata.is_account_key,
            needs_reauth=metadata.needs_reauth,
            created_at=now_ms,
            updated_at=now_ms,
        )
        assert row is not None
        return StoredSecret(row["id"], name, metadata.encoded, row["created_at"], row["updated_at"])
