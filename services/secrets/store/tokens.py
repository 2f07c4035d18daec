"""Secrets that hold the tokens of a sign-in."""

from __future__ import annotations

import sqlalchemy as sa

from libs import events
from libs.audit import Actor
from libs.store import Database, Outbox, sql
from libs.store.audit import Audit
from services.secrets.domain.exchanges import SERVICE
from services.secrets.domain.secrets import Metadata
from services.secrets.domain.subscriptions import KeptTokens
from services.secrets.store.tables import secrets

PROVIDER_CHANGED = "model-provider-changed"


class TokenRows:
    """Reads and replaces tokens. What has been replaced meanwhile by somebody else stays as it is."""

    def __init__(self, db: Database, outbox: Outbox, audit: Audit) -> None:
        self._db, self._outbox, self._audit = db, outbox, audit
        s = secrets
        here = (s.c.account == sa.bindparam("account"), s.c.name == sa.bindparam("name"))
        now_ms = sa.bindparam("now_ms", type_=sa.BigInteger)
        self._tokens = sql(sa.select(s.c.sealed, s.c.metadata, s.c.needs_reauth).where(*here))
        self._refreshed = sql(
            sa.update(s)
            .where(*here, s.c.sealed == sa.bindparam("old"))
            .values(
                sealed=sa.bindparam("new"),
                metadata=sa.bindparam("described"),
                needs_reauth=False,
                updated_at=sa.func.greatest(now_ms, s.c.updated_at + 1),
            )
        )
        self._needs_reauth = sql(
            sa.update(s)
            .where(*here, s.c.sealed == sa.bindparam("old"), ~s.c.needs_reauth)
            .values(
                metadata=sa.bindparam("described"),
                needs_reauth=True,
                updated_at=sa.func.greatest(now_ms, s.c.updated_at + 1),
            )
        )

    async def tokens(self, account: str, name: str) -> KeptTokens | None:
        """What is stored under a name."""
        row = await self._db.fetchrow(self._tokens, account=account, name=name)
        return None if row is None else KeptTokens(row["sealed"], row["metadata"], row["needs_reauth"])

    async def refreshed(
        self, account: str, name: str, old: bytes, sealed: bytes, metadata: Metadata, now_ms: int
    ) -> bool:
        """Replace the sealed value `old`; False when something else is stored by now."""
        values = {"account": account, "name": name, "old": old, "new": sealed, "now_ms": now_ms}
        return await self._db.execute(self._refreshed, described=metadata.encoded, **values) > 0

    async def needs_reauth(self, account: str, name: str, old: bytes, metadata: Metadata, now_ms: int) -> bool:
        """Mark the sealed value `old` as worthless and tell the account; False when something else is stored by now."""
        async with self._outbox.transaction() as tx:
            values = {"account": account, "name": name, "old": old, "described": metadata.encoded, "now_ms": now_ms}
            if not await tx.execute(self._needs_reauth, **values):
                return False
            by = Actor("", "", SERVICE)
            await self._audit.record(tx, by, "secret.needs-sign-in", name, account=account)
            tx.emit(*events.account_hint(account, PROVIDER_CHANGED, only=(account,)))
        return True
