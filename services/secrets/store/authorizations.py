"""Which keys may sign for which accounts."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs import events
from libs.audit import Actor
from libs.store import Database, Outbox, sql
from libs.store.audit import Audit
from services.secrets.domain.authorizations import AGENT, REVOKED, SIGNING_ROLES, Granted
from services.secrets.store.tables import account_authorizations


class AuthorizationRows:
    """Reads and writes authorizations. Nothing is cached: a right that is revoked ends at once."""

    def __init__(self, db: Database, outbox: Outbox, audit: Audit) -> None:
        self._db, self._outbox, self._audit = db, outbox, audit
        a = account_authorizations
        new = insert(a).values({c.name: sa.bindparam(c.name) for c in a.c})
        self._put = sql(
            new.on_conflict_do_update(
                index_elements=["account", "signer"],
                set_={c: new.excluded[c] for c in ("role", "capability", "updated_at")},
                where=sa.or_(a.c.role != REVOKED, sa.bindparam("made_ms", type_=sa.Double) > a.c.updated_at),
            )
        )
        self._revoke = sql(
            sa.update(a)
            .where(
                a.c.account == sa.bindparam("account"),
                a.c.signer == sa.bindparam("signer"),
                a.c.role.in_(SIGNING_ROLES),
            )
            .values(role=REVOKED, capability=None, updated_at=sa.bindparam("now_ms", type_=sa.BigInteger))
        )
        only = sa.bindparam("only", type_=sa.Text)
        after = sa.tuple_(sa.bindparam("after_account", type_=sa.Text), sa.bindparam("after_signer", type_=sa.Text))
        self._page = sql(
            sa.select(a.c.account, a.c.signer, a.c.role, a.c.created_at, a.c.updated_at)
            .where(
                a.c.role.in_(SIGNING_ROLES),
                sa.or_(only == sa.literal_column("''"), a.c.account == only),
                sa.tuple_(a.c.account, a.c.signer) > after,
            )
            .order_by(a.c.account, a.c.signer)
            .limit(sa.bindparam("most", type_=sa.BigInteger))
        )
        self._may_sign = sql(
            sa.select(sa.literal_column("1")).where(
                a.c.account == sa.bindparam("account"),
                a.c.signer == sa.bindparam("signer"),
                a.c.role.in_(SIGNING_ROLES),
            )
        )

    async def put(self, by: Actor, account: str, signer: str, capability: bytes, made_ms: float, now_ms: int) -> bool:
        """Insert, or replace role and capability; False for a pair revoked after `made_ms`, when it was granted."""
        async with self._db.transaction() as tx:
            stored = await tx.execute(
                self._put,
                account=account,
                signer=signer,
                role=AGENT,
                capability=capability,
                created_at=now_ms,
                updated_at=now_ms,
                made_ms=float(made_ms),
            )
            if stored:
                await self._audit.record(tx, by, "authorization.register", signer, account=account, detail=AGENT)
        return bool(stored)

    async def revoke(self, by: Actor, account: str, signer: str, now_ms: int) -> bool:
        """Mark as revoked and tell the edges; False when there is none that signs."""
        async with self._outbox.transaction() as tx:
            if not await tx.execute(self._revoke, account=account, signer=signer, now_ms=now_ms):
                return False
            await self._audit.record(tx, by, "authorization.revoke", signer, account=account)
            tx.emit(*events.signer_revoked(account, signer))
        return True

    async def page(self, account: str, after: tuple[str, str], most: int) -> list[Granted]:
        """Up to `most` rows after the pair `after`, by account and signer; of all accounts when `account` is empty."""
        rows = await self._db.fetch(self._page, only=account, after_account=after[0], after_signer=after[1], most=most)
        return [Granted(r["account"], r["signer"], r["role"], r["created_at"], r["updated_at"]) for r in rows]

    async def may_sign(self, account: str, signer: str) -> bool:
        """Whether there is a row that lets `signer` sign for `account`."""
        return await self._db.fetchval(self._may_sign, account=account, signer=signer) is not None
