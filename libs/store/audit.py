"""The audit table: each service that keeps one declares it in its own schema and writes it in the effect's transaction.

A trigger of its migration refuses to change, delete or truncate rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import sqlalchemy as sa
from seed.audit.v1 import audit_pb2 as pb

from libs.audit import Actor, Entry
from libs.errors import Invalid
from libs.store.database import Database, Tx
from libs.store.sql import sql

_PAGE = 100
_MOST = 1000
_NEWEST = 2**63 - 1

APPEND_ONLY = (
    "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the audit is append-only'; END $$",
    "CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()",
)
"""Statements of the migration that makes the table."""


def audit_table(metadata: sa.MetaData) -> sa.Table:
    """The table every service with an audit declares in its own schema. Times are Unix milliseconds."""

    def text(name: str) -> sa.Column[str]:
        return sa.Column(name, sa.Text(collation="C"), nullable=False)

    table = sa.Table(
        "audit",
        metadata,
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        text("account"),
        text("actor"),
        text("signer"),
        text("via"),
        text("action"),
        text("subject"),
        text("detail"),
    )
    sa.Index("audit_account", table.c.account, table.c.id)
    return table


class Audit:
    """Writes entries into transactions, and reads them page by page."""

    def __init__(self, db: Database, table: sa.Table, now: Callable[[], float] = time.time) -> None:
        self._db, self._now = db, now
        columns = [c.name for c in table.c if c.name != "id"]
        self._record = sql(sa.insert(table).values({name: sa.bindparam(name) for name in columns}))
        account = sa.bindparam("account", type_=sa.Text)
        self._page = sql(
            sa.select(*table.c)
            .where(
                sa.or_(account == sa.literal_column("''"), table.c.account == account),
                table.c.id < sa.bindparam("before", type_=sa.BigInteger),
            )
            .order_by(table.c.id.desc())
            .limit(sa.bindparam("most", type_=sa.BigInteger))
        )

    async def record(
        self, tx: Tx, by: Actor, action: str, subject: str, *, account: str | None = None, detail: str = ""
    ) -> None:
        """Add that `by` did `action` to `subject` of `account` (default: the actor's own), with the effect."""
        await tx.execute(
            self._record,
            at=int(self._now() * 1000),
            account=by.account if account is None else account,
            actor=by.account,
            signer=by.signer,
            via=by.via,
            action=action,
            subject=subject,
            detail=detail,
        )

    async def answer(self, request: pb.ListAuditRequest) -> pb.ListAuditResponse:
        """A page as AuditService gives it. Raises Invalid for a page token that is none."""
        most = min(request.page_size, _MOST) if request.page_size > 0 else _PAGE
        token = request.page_token or str(_NEWEST)
        if not (token.isascii() and token.isdigit() and int(token) <= _NEWEST):
            raise Invalid("Page token is invalid")
        entries = await self.page(request.account, most + 1, int(token))
        shown = entries[:most]
        return pb.ListAuditResponse(
            entries=[
                pb.AuditEntry(
                    id=entry.id,
                    at=entry.at,
                    account=entry.account,
                    actor=entry.by.account,
                    signer=entry.by.signer,
                    via=entry.by.via,
                    action=entry.action,
                    subject=entry.subject,
                    detail=entry.detail,
                )
                for entry in shown
            ],
            next_page_token=str(shown[-1].id) if len(entries) > most else "",
        )

    async def page(self, account: str, most: int, before: int) -> list[Entry]:
        """Up to `most` entries with an id below `before`, newest first; of all accounts when `account` is empty."""
        rows = await self._db.fetch(self._page, account=account, most=most, before=before)
        return [
            Entry(
                id=r["id"],
                at=r["at"],
                account=r["account"],
                by=Actor(r["actor"], r["signer"], r["via"]),
                action=r["action"],
                subject=r["subject"],
                detail=r["detail"],
            )
            for r in rows
        ]
