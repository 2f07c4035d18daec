"""Signing identities: secret rows that hold an account key."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.audit import Actor
from libs.store import Database, sql
from libs.store.audit import Audit
from libs.store.database import Row, Tx
from services.secrets.domain.identities import ClientRequest, Earlier, KeptKey, NewIdentity, Outcome, StoredIdentity
from services.secrets.store.tables import client_requests, secrets


class IdentityRows:
    """Reads, adds and deletes identities."""

    def __init__(self, db: Database, audit: Audit) -> None:
        self._db, self._audit = db, audit
        s, r = secrets, client_requests
        account, name = sa.bindparam("account"), sa.bindparam("name")
        self._list = sql(
            sa.select(s.c.id, s.c.name, s.c.metadata, s.c.created_at, s.c.updated_at)
            .where(s.c.account == account, s.c.is_account_key)
            .order_by(s.c.created_at.desc(), s.c.name)
        )
        self._delete = sql(sa.delete(s).where(s.c.account == account, s.c.name == name, s.c.is_account_key))
        self._add = sql(
            insert(s)
            .values({c.name: sa.bindparam(c.name) for c in s.c})
            .on_conflict_do_nothing(index_elements=["account", "name"])
        )
        columns = (s.c.id, s.c.name, s.c.metadata, s.c.created_at, s.c.updated_at)
        self._key = sql(
            sa.select(*columns, s.c.sealed).where(s.c.account == account, s.c.name == name, s.c.is_account_key)
        )
        self._describe = sql(
            sa.update(s)
            .where(s.c.account == account, s.c.name == name, s.c.is_account_key)
            .values(
                metadata=sa.bindparam("metadata"),
                updated_at=sa.func.greatest(sa.bindparam("now_ms", type_=sa.BigInteger), s.c.updated_at + 1),
            )
            .returning(*columns)
        )
        self._claim = sql(
            insert(r)
            .values({c.name: sa.bindparam(c.name) for c in r.c})
            .on_conflict_do_nothing(index_elements=["account", "action", "client_request_id"])
        )
        self._earlier = sql(
            sa.select(r.c.request_digest, r.c.response).where(
                r.c.account == account,
                r.c.action == sa.bindparam("action"),
                r.c.client_request_id == sa.bindparam("client_request_id"),
            )
        )

    async def list(self, account: str) -> list[StoredIdentity]:
        """All identities of an account, newest first."""
        return [_stored(row) for row in await self._db.fetch(self._list, account=account)]

    async def key(self, account: str, name: str) -> KeptKey | None:
        """An identity with its sealed seed."""
        row = await self._db.fetchrow(self._key, account=account, name=name)
        return None if row is None else KeptKey(_stored(row), row["sealed"])

    async def describe(self, by: Actor, name: str, metadata: bytes, now_ms: int) -> StoredIdentity | None:
        """Replace the metadata; None when the identity is gone."""
        async with self._db.transaction() as tx:
            values = {"account": by.account, "name": name, "metadata": metadata, "now_ms": now_ms}
            row = await tx.fetchrow(self._describe, **values)
            if row is None:
                return None
            await self._audit.record(tx, by, "identity.update", name)
        return _stored(row)

    async def delete(self, by: Actor, name: str) -> bool:
        """Delete an identity; False when there is none of that name."""
        async with self._db.transaction() as tx:
            if not await tx.execute(self._delete, account=by.account, name=name):
                return False
            await self._audit.record(tx, by, "identity.delete", name)
        return True

    async def earlier(self, account: str, request: ClientRequest) -> Earlier | None:
        """What was answered to the first request with this client's id, if there was one."""
        row = await self._db.fetchrow(
            self._earlier, account=account, action=request.action, client_request_id=request.id
        )
        return None if row is None else Earlier(row["request_digest"], row["response"])

    async def add(self, by: Actor, new: NewIdentity, request: ClientRequest | None, response: bytes) -> Outcome:
        """Store an identity together with the answer to its request; nothing is stored when either exists already.

        A request with the same id that is in flight is waited for.
        """
        try:
            async with self._db.transaction() as tx:
                if request is not None and not await self._claimed(tx, by.account, request, response, new.now_ms):
                    return Outcome.REQUEST_KNOWN
                if not await self._added(tx, by.account, new):
                    raise _NameTaken
                await self._audit.record(tx, by, "identity.add", new.name, detail=new.how)
        except _NameTaken:
            return Outcome.NAME_TAKEN
        return Outcome.STORED

    async def _claimed(self, tx: Tx, account: str, request: ClientRequest, response: bytes, now_ms: int) -> bool:
        return bool(
            await tx.execute(
                self._claim,
                account=account,
                action=request.action,
                client_request_id=request.id,
                request_digest=request.digest,
                response=response,
                created_at=now_ms,
            )
        )

    async def _added(self, tx: Tx, account: str, new: NewIdentity) -> bool:
        return bool(
            await tx.execute(
                self._add,
                id=new.id,
                account=account,
                name=new.name,
                sealed=new.sealed,
                metadata=new.metadata,
                is_account_key=True,
                needs_reauth=False,
                created_at=new.now_ms,
                updated_at=new.now_ms,
            )
        )


def _stored(row: Row) -> StoredIdentity:
    return StoredIdentity(row["id"], row["name"], row["metadata"], row["created_at"], row["updated_at"])


class _NameTaken(Exception):
    """Rolls the claim of the request id back."""
