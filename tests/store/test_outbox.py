"""The outbox: published after the commit, in order, and what is left behind later."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from libs.errors import NotFound
from libs.store import Database, Outbox
from libs.store.outbox import SWEEP_AFTER_MS
from tests.store.conftest import ADD, ALL, OUTBOX, Postgres, until


class Wire:
    """Where messages are published to, as a bus would; `up` is whether it takes them."""

    def __init__(self, limit: int = 10**9) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.up = True
        self.limit = limit
        self.now = 1_000_000.0

    def publish(self, subject: str, body: bytes) -> bool:
        if not self.up or len(self.sent) >= self.limit:
            return False
        self.sent.append((subject, body))
        return True

    def clock(self) -> float:
        return self.now

    def later(self) -> None:
        """Let every row that is there become one that is left behind."""
        self.now += SWEEP_AFTER_MS / 1000 + 1


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def outbox(db: Database, wire: Wire) -> Outbox:
    return Outbox(db, OUTBOX, wire.publish, wire.clock)


async def rows(postgres: Postgres) -> list[str]:
    return [r[0] for r in await postgres.run("select subject from outbox order by id")]


async def emit(outbox: Outbox, *subjects: str) -> None:
    async with outbox.transaction() as tx:
        for subject in subjects:
            tx.emit(subject, subject.encode() * 3)


async def test_messages_are_published_after_the_commit_and_in_order(
    outbox: Outbox, wire: Wire, tables: Postgres
) -> None:
    async with outbox.transaction() as tx:
        for number in range(50):
            tx.emit(f"s{number}", bytes([number]))
            await tx.execute(ADD, id=str(number), n=number)
        assert wire.sent == []
        assert await tables.run("select 1 from items") == []
    assert wire.sent == [(f"s{n}", bytes([n])) for n in range(50)]
    assert len(await rows(tables)) == 50
    await outbox.close()
    assert await rows(tables) == []


async def test_a_transaction_that_fails_publishes_nothing(
    outbox: Outbox, wire: Wire, db: Database, tables: Postgres
) -> None:
    with pytest.raises(NotFound):
        async with outbox.transaction() as tx:
            await tx.execute(ADD, id="a", n=1)
            tx.emit("s", b"b")
            raise NotFound("n")
    wire.later()
    await outbox._sweep()
    assert (wire.sent, await rows(tables), await db.fetch(ALL)) == ([], [], [])


async def test_a_commit_that_fails_publishes_nothing(outbox: Outbox, wire: Wire, tables: Postgres) -> None:
    await tables.run("create table if not exists late (id int primary key deferrable initially deferred)")
    await tables.run("truncate late")
    with pytest.raises(Exception, match="late_pkey"):
        async with outbox.transaction() as tx:
            await tx._conn.execute("insert into late values (1), (1)")
            tx.emit("s", b"b")
    assert (wire.sent, await rows(tables)) == ([], [])


async def test_the_sweep_publishes_exactly_what_was_left_behind(
    outbox: Outbox, wire: Wire, db: Database, tables: Postgres
) -> None:
    wire.limit = 2
    await emit(outbox, "a", "b", "c", "d")
    assert [s for s, _ in wire.sent] == ["a", "b"]
    wire.limit = 10**9

    # A process that died between its commit and its publishing.
    class Died(BaseException):
        pass

    def die(subject: str, body: bytes) -> bool:
        raise Died

    with pytest.raises(Died):
        await emit(Outbox(db, OUTBOX, die, wire.clock), "e", "f")

    await outbox._forget()
    await outbox._sweep()
    assert [s for s, _ in wire.sent] == ["a", "b"], "too young to count as left behind"
    wire.later()
    await emit(outbox, "g")
    await outbox._sweep()
    assert [s for s, _ in wire.sent] == ["a", "b", "g", "c", "d", "e", "f"]
    assert wire.sent[-1] == ("f", b"fff")
    await outbox.close()
    assert await rows(tables) == []


async def test_the_sweep_goes_on_until_nothing_is_left_and_stops_when_it_cannot_publish(
    outbox: Outbox, wire: Wire, tables: Postgres
) -> None:
    wire.up = False
    names = [f"s{n}" for n in range(250)]
    for start in range(0, 250, 50):
        await emit(outbox, *names[start : start + 50])
    wire.later()
    await outbox._sweep()
    assert wire.sent == []
    wire.up, wire.limit = True, 130
    await outbox._sweep()
    assert [s for s, _ in wire.sent] == names[:130]
    wire.limit = 10**9
    await outbox._sweep()
    assert [s for s, _ in wire.sent] == names
    assert await rows(tables) == []


async def test_sweepers_never_publish_the_same_row(tables: Postgres, wire: Wire) -> None:
    databases = [Database(tables.url, size=2) for _ in range(4)]
    for db in databases:
        await db.open()
    wire.up = False
    names = {f"s{n}" for n in range(1_000)}
    await emit(Outbox(databases[0], OUTBOX, wire.publish, wire.clock), *sorted(names))
    wire.later()
    wire.up = True
    await asyncio.gather(*(Outbox(db, OUTBOX, wire.publish, wire.clock)._sweep() for db in databases))
    assert sorted(s for s, _ in wire.sent) == sorted(names)
    assert await rows(tables) == []
    for db in databases:
        await db.close()


async def test_rows_that_another_sweeper_holds_are_skipped(outbox: Outbox, wire: Wire, db: Database) -> None:
    wire.up = False
    await emit(outbox, "a", "b")
    wire.later()
    wire.up = True
    async with db.transaction() as tx:
        await tx._conn.fetch("select id from outbox where subject = 'a' for update")
        await asyncio.wait_for(outbox._sweep(), 5)
        assert [s for s, _ in wire.sent] == ["b"]
    await outbox._sweep()
    assert [s for s, _ in wire.sent] == ["b", "a"]


async def test_published_rows_are_deleted_together(
    outbox: Outbox, wire: Wire, tables: Postgres, monkeypatch: pytest.MonkeyPatch, db: Database
) -> None:
    deletes: list[int] = []
    real = db.execute

    async def execute(statement: Any, **values: Any) -> int:
        deletes.append(await real(statement, **values))
        return deletes[-1]

    monkeypatch.setattr(db, "execute", execute)
    for number in range(20):
        await emit(outbox, f"a{number}", f"b{number}")
    running = asyncio.create_task(outbox.run())

    async def empty() -> bool:
        return not await rows(tables)

    await until(empty)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert deletes == [40]
    wire.later()
    await outbox._sweep()
    assert len(wire.sent) == 40


async def test_while_the_database_is_away_no_published_row_is_forgotten(
    outbox: Outbox, wire: Wire, tables: Postgres
) -> None:
    await emit(outbox, "a", "b")
    running = asyncio.create_task(outbox.run())
    await asyncio.to_thread(tables.process.kill)
    await outbox.close()
    assert len(outbox._done) in (0, 2)
    await asyncio.to_thread(tables.process.start)
    await asyncio.to_thread(tables.process.wait_ready, 20.0)

    async def empty() -> bool:
        return not await rows(tables)

    await until(empty)
    assert not running.done(), "it outlives the failure"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert [s for s, _ in wire.sent] == ["a", "b"], "published once"
