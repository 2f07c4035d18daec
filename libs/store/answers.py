"""What signed calls were answered, for whoever sends the same envelope again after its first answer was lost.

The effect and its signature commit together; the answer follows within a moment, in a batch that nobody waits for. It
is sealed with a key that follows from the signature: who reads the table without having the envelope reads nothing.
Answers go with the rows of their signatures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from libs import telemetry
from libs.errors import SeedError
from libs.signatures import SignedCall, sealed, unsealed
from libs.store.database import Database
from libs.store.sql import param, relaxed, sql

log = telemetry.get_logger("answers")

ANSWER_BYTES: Final = 64 * 1024
"""A larger answer is not kept: its repeat is refused."""
_WAITING_BYTES: Final = 16 * 1024 * 1024
_EVERY_S: Final = 0.05


class Answers:
    """The answers of one service. `run()` must run beside it; `besides`: methods whose repeats need none."""

    def __init__(self, db: Database, *, besides: Collection[str] = ()) -> None:
        if db.accepted is None:
            raise ValueError("the database records no signatures")
        self._db, self._besides = db, frozenset(besides)
        self._waiting: dict[bytes, bytes] = {}
        self._bytes = 0
        self._news = asyncio.Event()
        t = db.accepted.table
        self._found = sql(sa.select(t.c.answer).where(t.c.signature_hash == param("hash", sa.LargeBinary)))
        new = (
            sa.func.unnest(param("hashes", ARRAY(sa.LargeBinary)), param("answers", ARRAY(sa.LargeBinary)))
            .table_valued("hash", "answer")
            .render_derived(name="new")
        )
        stored = sa.update(t).where(t.c.signature_hash == new.c.hash).values(answer=new.c.answer)
        self._store = sql(stored.returning(relaxed()))

    def wants(self, method: str) -> bool:
        """Whether the answers of this method are kept."""
        return method not in self._besides

    def keep(self, call: SignedCall, method: str, answer: bytes) -> None:
        """Keep what a call that acted was answered. Returns at once; losing it costs a repeat its answer."""
        if len(answer) > ANSWER_BYTES or self._bytes + len(answer) > _WAITING_BYTES or not call.key:
            return
        if call.hash not in self._waiting:
            self._waiting[call.hash] = sealed(call.key, answer, method.encode())
            self._bytes += len(self._waiting[call.hash])
        self._news.set()

    async def find(self, call: SignedCall, method: str) -> bytes | None:
        """What the same signature was answered by this method; None when that is not known."""
        box = self._waiting.get(call.hash)
        if box is None:
            box = await self._db.fetchval(self._found, hash=call.hash)
        return None if box is None else unsealed(call.key, box, method.encode())

    async def run(self) -> None:
        """Store what is kept, many answers with one statement, until canceled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(_EVERY_S)
            self._news.clear()
            await self._flush()

    async def close(self) -> None:
        """Store the rest; call after run() has been canceled."""
        await self._flush()

    async def _flush(self) -> None:
        batch = dict(self._waiting)
        if not batch:
            return
        try:
            await self._db.fetch(self._store, hashes=list(batch), answers=list(batch.values()))
        except SeedError as e:
            log.warning("answers not kept", error=e.message)
        # Until it is stored it can be found in memory.
        for key, box in batch.items():
            del self._waiting[key]
            self._bytes -= len(box)
