"""The pool and transactions on a real server, also while it is away."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import asyncpg
import pytest

from libs.errors import NotFound, Unavailable
from libs.store import Database
from tests.store.conftest import ADD, ALL, ONE, SLEEP, Postgres, until


async def works(db: Database) -> bool:
    """Whether every connection the pool may have serves, all at once."""
    size = db._pool._size
    async with asyncio.timeout(10):
        rows = await asyncio.gather(*(db.fetchval(ONE) for _ in range(size * 4)))
    return rows == [1] * size * 4


def at_rest(db: Database) -> bool:
    """Whether nothing is lent, waited for or mended, and the count of connections is right."""
    pool = db._pool
    return not pool._lent and not pool._waiting and not pool._mending and pool._slots == len(pool._idle) <= pool._size


async def rests(db: Database) -> None:
    async def look() -> bool:
        return at_rest(db)

    await until(look)


async def test_statements_and_counts(db: Database) -> None:
    assert await db.execute(ADD, id="a", n=1) == 1
    assert [tuple(row) for row in await db.fetch(ALL)] == [("a", 1)]
    row = await db.fetchrow(ALL)
    assert row is not None and row["n"] == 1
    assert await db.fetchval(ALL) == "a"
    async with db.transaction() as tx:
        await tx.executemany(ADD, [{"id": "b", "n": 2}, {"id": "c", "n": 3}])
        assert await tx.execute(ADD, id="d", n=4) == 1
    assert len(await db.fetch(ALL)) == 4
    assert at_rest(db)


async def test_bad_values_take_no_connection(db: Database) -> None:
    with pytest.raises(KeyError):
        await db.fetchrow(ADD, id="a")
    assert at_rest(db)


@pytest.mark.parametrize("error", [NotFound("n"), ValueError("v"), TimeoutError()])
async def test_an_error_rolls_back(db: Database, error: Exception) -> None:
    expected = Unavailable if isinstance(error, TimeoutError) else type(error)
    with pytest.raises(expected):
        async with db.transaction() as tx:
            await tx.execute(ADD, id="a", n=1)
            raise error
    assert await db.fetch(ALL) == []
    await rests(db)


async def test_an_error_of_a_statement_leaves_the_connection_usable(db: Database) -> None:
    await db.execute(ADD, id="a", n=1)
    for _ in range(5):
        with pytest.raises(asyncpg.UniqueViolationError):
            await db.execute(ADD, id="a", n=1)
        with pytest.raises(asyncpg.UniqueViolationError):
            async with db.transaction() as tx:
                await tx.execute(ADD, id="b", n=1)
                await tx.execute(ADD, id="a", n=1)
    assert at_rest(db)
    assert len(db._pool._idle) == 1
    assert len(await db.fetch(ALL)) == 1


async def test_emitting_needs_an_outbox(db: Database) -> None:
    with pytest.raises(RuntimeError):
        async with db.transaction() as tx:
            await tx.execute(ADD, id="a", n=1)
            tx.emit("s", b"b")
    assert await db.fetch(ALL) == []


async def test_all_in_use_is_unavailable_in_time(tables: Postgres) -> None:
    db = Database(tables.url, size=2, wait_s=0.2)
    await db.open()
    async with db.connection(), db.connection():
        began = time.monotonic()
        with pytest.raises(Unavailable) as e:
            await db.fetchval(ONE)
        assert 0.1 < time.monotonic() - began < 3
        assert e.value.retry_after_s == 1
    assert await works(db)
    await rests(db)
    await db.close()


async def test_connections_are_lent_in_the_order_of_asking(tables: Postgres) -> None:
    db = Database(tables.url, size=1)
    await db.open()
    order: list[int] = []

    async def use(number: int) -> None:
        async with db.connection():
            order.append(number)

    async with db.connection():
        tasks = []
        for number in range(20):
            tasks.append(asyncio.create_task(use(number)))
            await asyncio.sleep(0)
        tasks[3].cancel()
        tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [n for n in range(20) if n not in (0, 3)]
    assert at_rest(db)
    await db.close()


async def test_a_canceled_task_rolls_back_and_gives_a_healthy_connection_back(db: Database, tables: Postgres) -> None:
    async def work() -> None:
        async with db.transaction() as tx:
            await tx.execute(ADD, id="a", n=1)
            await tx.fetch(SLEEP, seconds=60.0)

    task = asyncio.create_task(work())
    await tables.busy("pg_sleep")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await tables.busy("pg_sleep", 0)
    await rests(db)
    assert await db.fetch(ALL) == []
    assert await works(db)


async def test_a_statement_of_its_own_may_be_canceled_too(db: Database, tables: Postgres) -> None:
    tasks = [asyncio.create_task(db.fetch(SLEEP, seconds=60.0)) for _ in range(3)]
    await tables.busy("pg_sleep", 3)
    waiting = asyncio.create_task(db.fetchval(ONE))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await asyncio.wait_for(waiting, 5) == 1
    await tables.busy("pg_sleep", 0)
    await rests(db)
    assert len(db._pool._idle) == 3, "mended, not thrown away"
    assert await works(db)


async def test_connections_survive_a_storm_of_cancellations(db: Database) -> None:
    chance = random.Random(7)

    async def work(number: int) -> None:
        if number % 3:
            async with db.transaction() as tx:
                await tx.execute(ADD, id=str(number), n=number)
                if number % 3 == 1:
                    raise NotFound("n")
        else:
            await db.fetch(SLEEP, seconds=0.001)

    tasks = [asyncio.create_task(work(n)) for n in range(200)]
    while not all(task.done() for task in tasks):
        chance.choice(tasks).cancel()
        await asyncio.sleep(0.001)
    await rests(db)
    assert await works(db)
    committed = {row["id"] for row in await db.fetch(ALL)}
    for number, task in enumerate(tasks):
        if not task.cancelled() and task.exception() is None and number % 3 == 2:
            assert str(number) in committed
        if number % 3 == 1:
            assert str(number) not in committed


async def test_a_session_that_the_server_ends_is_unavailable_once(db: Database, tables: Postgres) -> None:
    running = asyncio.create_task(db.fetch(SLEEP, seconds=60.0))
    await tables.busy("pg_sleep")
    await tables.run(
        "select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep%'"
        " and pid <> pg_backend_pid()"
    )
    with pytest.raises(Unavailable):
        await running
    assert await works(db)
    with pytest.raises(Unavailable):
        async with db.transaction() as tx:
            pid = await tx._conn.fetchval("select pg_backend_pid()")
            await tables.run("select pg_terminate_backend($1)", pid)
            await tx.execute(ADD, id="a", n=1)
    assert await works(db)
    await rests(db)


async def test_while_the_server_is_killed_calls_are_unavailable_and_then_work_by_themselves(
    db: Database, tables: Postgres
) -> None:
    outcomes: list[Any] = []
    stop = asyncio.Event()

    async def work(lane: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                async with db.transaction() as tx:
                    await tx.execute(ADD, id=f"{lane}-{number}", n=number)
                outcomes.append(f"{lane}-{number}")
            except Unavailable as e:
                outcomes.append(e)
                await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(work(lane)) for lane in range(5)]

    async def saved() -> bool:
        return isinstance(outcomes[-1], str) if outcomes else False

    async def refused() -> bool:
        return isinstance(outcomes[-1], Unavailable)

    await until(saved)
    await asyncio.to_thread(tables.process.kill)
    await until(refused)
    await asyncio.to_thread(tables.process.start)
    await until(saved)
    stop.set()
    await asyncio.gather(*tasks)
    committed = {row["id"] for row in await db.fetch(ALL)}
    assert {o for o in outcomes if isinstance(o, str)} <= committed, "what was acknowledged is there"
    assert await works(db)
    await rests(db)


async def test_open_waits_for_the_server_and_says_at_once_what_cannot_get_better(postgres: Postgres) -> None:
    await asyncio.to_thread(postgres.process.kill)
    db = Database(postgres.url, size=2)
    with pytest.raises(OSError):
        await db.open(patience_s=0.1)
    opening = asyncio.create_task(db.open())
    await asyncio.to_thread(postgres.process.start)
    await asyncio.wait_for(opening, 15)
    assert await works(db)
    await db.close()
    for wrong in ("not a url", postgres.url.replace("seed_sessions:", "seed_sessions:x")):
        began = time.monotonic()
        with pytest.raises((asyncpg.ClientConfigurationError, asyncpg.InvalidPasswordError)):
            await Database(wrong, size=1).open()
        assert time.monotonic() - began < 5


async def test_close_ends_running_statements_in_time(tables: Postgres) -> None:
    db = Database(tables.url, size=2, wait_s=5)
    await db.open()
    done = asyncio.create_task(db.fetch(SLEEP, seconds=0.2))
    await tables.busy("pg_sleep")
    async with db.connection():
        waiting = asyncio.create_task(db.fetchval(ONE))
        await asyncio.sleep(0)
        closing = asyncio.create_task(db.close())
        assert len(await done) == 1
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(closing, 5)
    with pytest.raises(Unavailable):
        await db.fetchval(ONE)
    open_ones = "select count(*) from pg_stat_activity where application_name = 'seed-agents'"

    async def none_left() -> bool:
        return (await tables.run(open_ones))[0][0] == 0

    await until(none_left)
