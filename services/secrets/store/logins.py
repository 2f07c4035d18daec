"""Rows of sign-ins."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.store import Database, sql
from libs.store.database import Row
from services.secrets.domain.sign_ins import FAILED, PENDING, SUBMITTED, UNFINISHED, Login, NewLogin
from services.secrets.store.tables import provider_logins

_KEPT = tuple(c for c in provider_logins.c if c.name != "created_at")


class LoginRows:
    """Reads and writes sign-ins."""

    def __init__(self, db: Database) -> None:
        self._db = db
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
