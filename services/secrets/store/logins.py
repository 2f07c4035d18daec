"""Rows of sign-ins."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs import events
from libs.audit import Actor
from libs.store import Database, Outbox, sql
from libs.store.audit import Audit
from libs.store.database import Row
from services.secrets.domain.secrets import Metadata
from services.secrets.domain.sign_ins import (
    COMPLETED,
    EXCHANGING,
    FAILED,
    PENDING,
    SUBMITTED,
    UNFINISHED,
    Login,
    NewLogin,
)
from services.secrets.store.secrets import SecretRows
from services.secrets.store.tables import provider_logins
from services.secrets.store.tokens import PROVIDER_CHANGED

_KEPT = tuple(c for c in provider_logins.c if c.name != "created_at")


class LoginRows:
    """Reads and writes sign-ins."""

    def __init__(self, db: Database, outbox: Outbox, secrets: SecretRows, audit: Audit) -> None:
        self._db, self._outbox, self._secrets, self._audit = db, outbox, secrets, audit
        t = provider_logins
        account, login_id = sa.bindparam("account"), sa.bindparam("id")
        ended = {"status": FAILED, "error": sa.bindparam("error"), "sealed": None, "sealed_code": None}
        ended["changed_at"] = sa.bindparam("now_ms", type_=sa.BigInteger)
        self._find = sql(sa.select(*_KEPT).where(t.c.account == account, t.c.id == login_id))
        self._insert = sql(insert(t).values({c.name: sa.bindparam(c.name) for c in t.c}))
        self._replace = sql(sa.update(t).where(t.c.account == account, t.c.status.in_(UNFINISHED)).values(**ended))
        self._fail = sql(
            sa.update(t).where(t.c.account == account, t.c.id == login_id, t.c.status.in_(UNFINISHED)).values(**ended)
        )
        now_ms = sa.bindparam("now_ms", type_=sa.BigInteger)
        self._submit = sql(
            sa.update(t)
            .where(t.c.account == account, t.c.id == login_id, t.c.status == PENDING, t.c.expires_at > now_ms)
            .values(
                status=SUBMITTED, sealed_code=sa.bindparam("code"), signer=sa.bindparam("signer"), changed_at=now_ms
            )
        )

        due = (
            sa.select(t.c.id)
            .where(t.c.status == SUBMITTED)
            .order_by(t.c.changed_at)
            .limit(1)
            .with_for_update(skip_locked=True)
            .scalar_subquery()
        )
        self._claim = sql(
            sa.update(t).where(t.c.id == due).values(status=EXCHANGING, changed_at=now_ms).returning(*_KEPT)
        )
        self._complete = sql(
            sa.update(t)
            .where(t.c.account == account, t.c.id == login_id, t.c.status == EXCHANGING)
            .values(
                status=COMPLETED,
                secret_name=sa.bindparam("secret_name"),
                sealed=None,
                sealed_code=None,
                changed_at=now_ms,
            )
        )
        before = sa.bindparam("before_ms", type_=sa.BigInteger)
        self._interrupted = sql(sa.update(t).where(t.c.status == EXCHANGING, t.c.changed_at < before).values(**ended))
        self._forget = sql(
            sa.delete(t).where(
                sa.or_(
                    sa.and_(t.c.status.in_([COMPLETED, FAILED]), t.c.changed_at < before),
                    sa.and_(t.c.status == PENDING, t.c.expires_at < before),
                )
            )
        )

    async def begin(self, new: NewLogin, replaced: str) -> None:
        """Store one; those of the account that are unfinished fail with the text `replaced`."""
        async with self._db.transaction() as tx:
            await tx.execute(self._replace, account=new.account, error=replaced, now_ms=new.now_ms)
            await tx.execute(
                self._insert,
                id=new.id,
                account=new.account,
                provider_type=new.provider_type,
                status=PENDING,
                sealed=new.sealed,
                sealed_code=None,
                secret_name="",
                error="",
                signer="",
                created_at=new.now_ms,
                expires_at=new.expires_at,
                changed_at=new.now_ms,
            )

    async def find(self, account: str, login_id: str) -> Login | None:
        """One of an account."""
        row = await self._db.fetchrow(self._find, account=account, id=login_id)
        return None if row is None else read_login(row)

    async def submit(self, account: str, login_id: str, signer: str, sealed_code: bytes, now_ms: int) -> bool:
        """Keep a code for the exchange; False unless the sign-in was pending."""
        values = {"account": account, "id": login_id, "signer": signer, "code": sealed_code, "now_ms": now_ms}
        async with self._db.transaction() as tx:
            return await tx.execute(self._submit, **values) > 0

    async def fail(self, account: str, login_id: str, error: str, now_ms: int) -> bool:
        """End an unfinished one; False when it was finished."""
        async with self._db.transaction() as tx:
            return await tx.execute(self._fail, account=account, id=login_id, error=error, now_ms=now_ms) > 0

    async def claim(self, now_ms: int) -> Login | None:
        """A submitted one, from now on this caller's alone."""
        row = await self._db.fetchrow(self._claim, now_ms=now_ms)
        return None if row is None else read_login(row)

    async def complete(
        self, login: Login, by: Actor, new_id: str, name: str, sealed: bytes, metadata: Metadata, now_ms: int
    ) -> bool:
        """Store the credentials and end the sign-in; False, and nothing stored, when it has been ended meanwhile."""
        async with self._outbox.transaction() as tx:
            values = {"account": login.account, "id": login.id, "secret_name": name, "now_ms": now_ms}
            if not await tx.execute(self._complete, **values):
                return False
            await self._secrets.write(tx, new_id, login.account, name, sealed, metadata, now_ms)
            await self._audit.record(tx, by, "secret.sign-in", name, detail=login.provider_type)
            tx.emit(*events.account_hint(login.account, PROVIDER_CHANGED, only=(login.account,)))
        return True

    async def end_interrupted(self, before_ms: int, error: str, now_ms: int) -> int:
        """End those whose exchange began before a time; returns how many."""
        return await self._db.execute(self._interrupted, before_ms=before_ms, error=error, now_ms=now_ms)

    async def forget(self, before_ms: int) -> None:
        """Delete those that ended before a time."""
        await self._db.execute(self._forget, before_ms=before_ms)


def read_login(row: Row) -> Login:
    """A row as a sign-in."""
    return Login(
        id=row["id"],
        account=row["account"],
        provider_type=row["provider_type"],
        status=row["status"],
        secret_name=row["secret_name"],
        error=row["error"],
        signer=row["signer"],
        sealed=row["sealed"],
        sealed_code=row["sealed_code"],
        expires_at=row["expires_at"],
        changed_at=row["changed_at"],
    )
