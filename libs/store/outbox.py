"""The outbox: messages that commit with their cause and are published after it, at least once.

A message is published from memory right after the commit, and its row deleted in the background. Rows that outlive
their process (it died between commit and publish, or NATS was away) are published by a sweep of any process of the
service. Readers drop repeats by the event's id.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from libs import telemetry
from libs.errors import SeedError
from libs.store.database import Database, Row, Transaction, Tx
from libs.store.signatures import repeated
from libs.store.sql import Sql, sql

log = telemetry.get_logger("outbox")

SWEEP_AFTER_MS = 2_000
"""Age at which a row counts as left behind."""
_SWEEP_EVERY_S = 1.0
_DELETE_EVERY_S = 0.25
_SWEEP_ROWS = 100
_PURGE_EVERY_S = 20.0

Publish = Callable[[str, bytes], bool]
"""Hands a message to the bus; False when it is not connected."""


def outbox_table(metadata: sa.MetaData) -> sa.Table:
    """The table every service with an outbox declares in its own schema."""
    return sa.Table(
        "outbox",
        metadata,
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )


class Draft:
    """What a single statement will have told once it has committed: see `Outbox.single`."""

    __slots__ = ("emitted",)

    def __init__(self) -> None:
        self.emitted: list[tuple[str, bytes]] = []

    def emit(self, subject: str, body: bytes) -> None:
        """Publish `body` on `subject` once the statement has committed, at least once."""
        self.emitted.append((subject, body))


@dataclass(frozen=True, slots=True)
class Single:
    """A transaction of one statement, made by `Outbox.single`: without and with the signature of a call."""

    plain: Sql
    signed: Sql | None


class Outbox:
    """Opens transactions whose `emit`ted messages are published after the commit."""

    def __init__(self, db: Database, table: sa.Table, publish: Publish, now: Callable[[], float] = time.time) -> None:
        self._db, self._publish, self._now = db, publish, now
        self._done: list[int] = []
        self._table = table
        insert = self._rows()
        self._insert = sql(insert.returning(table.c.id))
        if db.accepted is not None:
            # One statement for both: a round trip is most of what either costs.
            taken = db.accepted.insert.cte("taken")
            is_new = sa.exists(sa.select(taken.c.signature_hash)).label("is_new")
            self._insert_signed = sql(insert.add_cte(taken).returning(table.c.id, is_new))
        self._delete = sql(table.delete().where(table.c.id == sa.any_(sa.bindparam("ids", type_=ARRAY(sa.BigInteger)))))
        self._left = sql(
            sa.select(table.c.id, table.c.subject, table.c.body)
            .where(table.c.created_at < sa.bindparam("before", type_=sa.BigInteger))
            .order_by(table.c.id)
            .limit(_SWEEP_ROWS)
            .with_for_update(skip_locked=True)
        )

    def _rows(self, when: sa.ColumnElement[bool] | None = None) -> Any:
        rows = (
            sa.func.unnest(
                sa.bindparam("subjects", type_=ARRAY(sa.Text)), sa.bindparam("bodies", type_=ARRAY(sa.LargeBinary))
            )
            .table_valued("subject", "body")
            .render_derived(name="emitted")
        )
        values = sa.select(rows.c.subject, rows.c.body, sa.bindparam("at", type_=sa.BigInteger))
        return self._table.insert().from_select(
            ["subject", "body", "created_at"], values if when is None else values.where(when)
        )

    def single(self, statement: sa.Select[Any], when: sa.ColumnElement[bool]) -> Single:
        """`statement`, which also keeps the messages of a `Draft` and the call's signature if `when` holds.

        A transaction of one statement needs one round trip where an open one needs four. `when` is a condition on a
        part of the statement that says that it is carried out.
        """
        told = self._rows(when).returning(self._table.c.id).cte("told")
        whole = statement.add_columns(sa.select(sa.func.array_agg(told.c.id)).scalar_subquery().label("told"))
        accepted = self._db.accepted
        signed = sql(whole.add_cte(accepted.insert_if(when).cte("signed"))) if accepted is not None else None
        return Single(sql(whole), signed)

    async def send(self, single: Single, draft: Draft, **values: Any) -> Row | None:
        """Run what `single` made, commit it and publish the messages; its row, None when it has none.

        Nothing is kept and published when its condition does not hold. Raises asyncpg.UniqueViolationError, among what
        the statement raises, when the call's signature has acted before.
        """
        subjects, bodies = [s for s, _ in draft.emitted], [b for _, b in draft.emitted]
        values |= {"subjects": subjects, "bodies": bodies, "at": int(self._now() * 1000)}
        statement, accepted = single.plain, self._db.accepted
        call = accepted.take() if accepted is not None else None
        if call is not None and accepted is not None and single.signed is not None:
            statement = single.signed
            values |= {f"signed_{name}": value for name, value in accepted.values(call).items()}
        done = False
        try:
            row = await self._db.fetchrow(statement, **values)
            done = row is not None and row["told"] is not None
        finally:
            if call is not None and not done:
                call.recorded = False
        if done and row is not None:
            self._publish_stored(draft.emitted, row["told"])
        return row

    def transaction(self) -> Transaction:
        """A transaction; on leaving, its messages are stored, it commits, and they are published."""
        return Transaction(self._db, self._store, self._pass_on)

    def _pass_on(self, tx: Tx) -> None:
        self._publish_stored(tx.emitted, tx.stored)

    def _publish_stored(self, messages: Sequence[tuple[str, bytes]], rows: Sequence[int]) -> None:
        for (subject, body), row in zip(messages, rows, strict=True):
            if self._publish(subject, body):
                self._done.append(row)

    async def _store(self, tx: Tx) -> None:
        """Keep what is emitted and, with it, the signature of the call. Raises Conflict when that has acted before."""
        accepted = self._db.accepted
        if not tx.emitted:
            await self._db.accept(tx)
            return
        values = {
            "subjects": [s for s, _ in tx.emitted],
            "bodies": [b for _, b in tx.emitted],
            "at": int(self._now() * 1000),
        }
        if accepted is None or (call := accepted.take()) is None:
            rows = await tx.fetch(self._insert, **values)
        else:
            tx.signed = call
            rows = await tx.fetch(self._insert_signed, **values, **accepted.values(call))
            if not rows[0]["is_new"]:
                raise repeated(call)
        tx.stored = [row[0] for row in rows]

    def tell(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Publish news of what has committed, without a row: for changes that another event follows in any case."""
        for subject, body in messages:
            self._publish(subject, body)

    async def run(self) -> None:
        """Delete published rows and publish left-behind ones until canceled. Belongs into the service's task group.

        Signatures that have expired go too.
        """
        swept = purged = 0.0
        while True:
            await asyncio.sleep(_DELETE_EVERY_S)
            try:
                await self._forget()
                if self._now() - swept >= _SWEEP_EVERY_S:
                    swept = self._now()
                    await self._sweep()
                if self._db.accepted is not None and self._now() - purged >= _PURGE_EVERY_S:
                    purged = self._now()
                    await self._db.accepted.purge(self._db, int(purged * 1000))
            except SeedError as e:
                log.warning("outbox waits", error=e.message)
            except Exception as e:  # the sweep must outlive any single failure
                log.error("outbox failed", error=type(e).__name__, exc_info=e)

    async def close(self) -> None:
        """Delete what has been published; call after run() has been canceled."""
        with contextlib.suppress(SeedError):
            await self._forget()

    async def _forget(self) -> None:
        if self._done:
            ids, self._done = self._done, []
            try:
                await self._db.execute(self._delete, ids=ids)
            except BaseException:
                self._done += ids
                raise

    async def _sweep(self) -> None:
        while await self._sweep_some():
            pass

    async def _sweep_some(self) -> bool:
        """Publish some rows that are left behind; whether there may be more that can be published now."""
        before = int(self._now() * 1000) - SWEEP_AFTER_MS
        async with self._db.transaction() as tx:
            rows = await tx.fetch(self._left, before=before)
            ids: list[int] = []
            for row in rows:
                if not self._publish(row["subject"], row["body"]):
                    break
                ids.append(row["id"])
            if ids:
                await tx.execute(self._delete, ids=ids)
        return len(ids) == _SWEEP_ROWS
