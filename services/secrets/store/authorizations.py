"""Which keys may sign for which accounts."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.store import Database, sql
from services.secrets.domain.authorizations import SIGNING_ROLES
from services.secrets.store.tables import account_authorizations


class AuthorizationRows:
    """Reads and writes authorizations. Nothing is cached: a row that is removed ends the right at once."""

    def __init__(self, db: Database) -> None:
        self._db = db
        a = account_authorizations
        new = insert(a).values({c.name: sa.bindparam(c.name) for c in a.c})
        self._put = sql(
            new.on_conflict_do_update(
                index_elements=["account", "signer"],
                set_={c: new.excluded[c] for c in ("role", "capability", "updated_at")},
            )
        )
        self._may_sign = sql(
            sa.select(sa.literal_column("1")).where(
                a.c.account == sa.bindparam("account"),
                a.c.signer == sa.bindparam("signer"),
                a.c.role.in_(SIGNING_ROLES),
            )
        )

    async def put(self, account: str, signer: str, role: str, capability: bytes, now_ms: int) -> None:
        """Insert, or replace role and capability."""
        await self._db.execute(
            self._put,
            account=account,
            signer=signer,
            role=role,
            capability=capability,
            created_at=now_ms,
            updated_at=now_ms,
        )

    async def may_sign(self, account: str, signer: str) -> bool:
        """Whether there is a row that lets `signer` sign for `account`."""
        return await self._db.fetchval(self._may_sign, account=account, signer=signer) is not None
