"""The outbox: messages that commit with their cause and are published after it, at least once.

A message is published from memory right after the commit, and its row deleted in the background. Rows that outlive
their process (it died between commit and publish, or NATS was away) are published by a sweep of any process of the
service. Readers drop repeats by the event's id.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from libs import telemetry
from libs.errors import SeedError
from libs.store.database import Database, Tx
from libs.store.sql import sql

log = telemetry.get_logger("outbox")

SWEEP_AFTER_MS = 2_000
"""Age at which a row counts as left behind."""
_SWEEP_EVERY_S = 1.0
_DELETE_EVERY_S = 0.25
_SWEEP_ROWS = 100

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


class Outbox:
    """Opens transactions whose `emit`ted messages are published after the commit."""

    def __init__(self, db: Database, table: sa.Table, publish: Publish, now: Callable[[], float] = time.time) -> None:
        self._db, self._publish, self._now = db, publish, now
        self._done: list[int] = []
        rows = (
            sa.func.unnest(
                sa.bindparam("subjects", type_=ARRAY(sa.Text)), sa.bindparam("bodies", type_=ARRAY(sa.LargeBinary))
            )
            .table_valued("subject", "body")
            .render_derived(name="emitted")
        )
        self._insert = sql(
            table.insert()
            .from_select(
                ["subject", "body", "created_at"],
                sa.select(rows.c.subject, rows.c.body, sa.bindparam("at", type_=sa.BigInteger)),
            )
            .returning(table.c.id)
        )
        self._delete = sql(table.delete().where(table.c.id == sa.any_(sa.bindparam("ids", type_=ARRAY(sa.BigInteger)))))
        self._left = sql(
            sa.select(table.c.id, table.c.subject, table.c.body)
            .where(table.c.created_at < sa.bindparam("before", type_=sa.BigInteger))
            .order_by(table.c.id)
            .limit(_SWEEP_ROWS)
            .with_for_update(skip_locked=True)
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """A transaction; on leaving, its messages are stored, it commits, and they are published."""
        async with self._db.connection() as conn:
            async with conn.transaction():
                tx = Tx(conn)
                yield tx
                ids: list[int] = []
                if tx.emitted:
                    subjects, bodies = [s for s, _ in tx.emitted], [b for _, b in tx.emitted]
                    at = int(self._now() * 1000)
                    ids = [r[0] for r in await tx.fetch(self._insert, subjects=subjects, bodies=bodies, at=at)]
        for (subject, body), row in zip(tx.emitted, ids, strict=True):
            if self._publish(subject, body):
                self._done.append(row)

    def tell(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Publish news of what has committed, without a row: for changes that another event follows in any case."""
        for subject, body in messages:
            self._publish(subject, body)

    async def run(self) -> None:
        """Delete published rows and publish left-behind ones until canceled. Belongs into the service's task group."""
        swept = 0.0
        while True:
            await asyncio.sleep(_DELETE_EVERY_S)
            try:
                await self._forget()
                if self._now() - swept >= _SWEEP_EVERY_S:
                    swept = self._now()
                    await self._sweep()
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
