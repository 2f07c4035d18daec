"""Accepted signatures: each is recorded in the transaction of its effect, so that it has one at most.

The table outlives what Valkey remembers. The first transaction of a call takes the call's signature; a second call with
the same one waits for the first and is refused. Rows go when the envelope is too old to be accepted anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs import signatures
from libs.errors import Conflict
from libs.signatures import SignedCall
from libs.store.sql import sql

if TYPE_CHECKING:
    from libs.store.database import Database, Tx

_PURGE_ROWS = 5_000


def accepted_signatures_table(metadata: sa.MetaData) -> sa.Table:
    """The table every service with mutating actions declares in its own schema. Times are Unix milliseconds."""
    table = sa.Table(
        "accepted_signatures",
        metadata,
        # SHA-256
        sa.Column("signature_hash", sa.LargeBinary, primary_key=True),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        # What the call was answered, sealed, once that is known (libs.store.answers).
        sa.Column("answer", sa.LargeBinary),
    )
    sa.Index("accepted_signatures_due", table.c.expires_at)
    return table


class AcceptedSignatures:
    """Records signatures in open transactions. One for each Database whose transactions signed calls may cause."""

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        new = insert(table).values({c.name: sa.bindparam(c.name, type_=c.type) for c in table.c if not c.nullable})
        self.insert: Any = new.on_conflict_do_nothing().returning(table.c.signature_hash)
        """A row when the signature was new. Its parameters are those of `values`."""
        self._record = sql(self.insert)
        due = (
            sa.select(table.c.signature_hash)
            .where(table.c.expires_at < sa.bindparam("now", type_=sa.BigInteger))
            .limit(_PURGE_ROWS)
            .with_for_update(skip_locked=True)
        )
        self._purge = sql(sa.delete(table).where(table.c.signature_hash.in_(due)))

    def insert_if(self, when: Any) -> Any:
        """The same as part of a statement, if `when` holds; raises a unique violation for a signature that is known.

        Its parameters are those of `values`, each with `signed_` before its name.
        """
        columns = [column for column in self.table.c if not column.nullable]
        values = [sa.bindparam(f"signed_{column.name}", type_=column.type) for column in columns]
        return insert(self.table).from_select([column.name for column in columns], sa.select(*values).where(when))

    @staticmethod
    def take() -> SignedCall | None:
        """The signed call this task serves, when no transaction has taken it; from now on it is taken."""
        call = signatures.current()
        if call is None or call.recorded:
            return None
        call.recorded = True
        return call

    @staticmethod
    def values(call: SignedCall) -> dict[str, Any]:
        """The parameters of `insert`."""
        return {"signature_hash": call.hash, "account": call.account, "expires_at": call.expires_at}

    async def record(self, tx: Tx, call: SignedCall) -> None:
        """Record a taken call in its transaction. Raises Conflict when its signature has acted before."""
        if await tx.fetchval(self._record, **self.values(call)) is None:
            raise repeated(call)

    async def purge(self, db: Database, now_ms: int) -> None:
        """Delete what has expired."""
        while await db.execute(self._purge, now=now_ms) == _PURGE_ROWS:
            pass


def repeated(call: SignedCall) -> Conflict:
    """The refusal of a signature that has acted before."""
    call.repeated = True
    return Conflict("This signed request has already been accepted")
