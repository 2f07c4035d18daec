"""Runs behind others of their session: no claim looks at them, and none is lost."""

import asyncio
import json
from typing import Any

from services.runs.store.tables import TERMINAL
from tests.runs.house import DONE, Store, working


def read(plan: dict[str, Any]) -> int:
    """Rows that the scans of a plan took from the table, those they threw away included."""
    own = 0
    if plan.get("Relation Name") == "runs":
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return own + sum(read(part) for part in plan.get("Plans", ()))


async def looked_at(store: Store, account: str) -> int:
    """How many rows a claim reads to find the due runs of an account."""
    async with store.db.connection() as connection, connection.transaction():
        for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            await connection.execute(f"SET LOCAL {setting} = off")
        explained = await connection.fetchval(
            "EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM runs_due($1, $2, 9, 64, 16, 0)", [account], store.clock.ms
        )
    return read(json.loads(explained)[0]["Plan"])


async def test_runs_behind_a_busy_session_are_not_looked_at_one_by_one(store: Store) -> None:
    await working(store)
    first = await store.started("busy", owner="A")
    [held] = await store.queue.claim("w", 1)
    waiting = [await store.started("busy", owner="A", behind=True) for _ in range(120)]
    other = await store.started("idle", owner="A")
    assert await looked_at(store, "A") < 20
    assert [row["id"] for row in await store.queue.claim("w", 8)] == [other]
    assert {reason.behind for reason in (await store.queue.dispatch.reasons(waiting[:1])).values()} == {first}

    await store.queue.complete(held["id"], held["attempt"], DONE)
    for run_id in waiting[:3]:
        assert await looked_at(store, "A") < 20
        [row] = await store.queue.claim("w", 8)
        assert row["id"] == run_id
        await store.queue.complete(row["id"], row["attempt"], DONE)
    # Whatever becomes of the one that is next, the one after it is found.
    await store.trees.cancel_run(waiting[3])
    assert [row["id"] for row in await store.queue.claim("w", 8)] == [waiting[4]]


async def test_no_run_behind_others_is_lost_whoever_comes_and_goes_at_once(store: Store) -> None:
    left = {await store.started("s", owner="A")}
    done: list[str] = []

    async def come(n: int) -> None:
        for _ in range(n):
            left.add(await store.started("s", owner="A", behind=True))

    async def go() -> None:
        while left - set(done):
            for row in await store.queue.claim("w", 4):
                if len(done) % 5 == 4:
                    await store.trees.cancel_run(max(left - set(done) - {row["id"]}, default=row["id"]))
                await store.queue.complete(row["id"], row["attempt"], DONE)
            done[:] = [row["id"] for row in await store.all() if row["status"] in TERMINAL]

    async with asyncio.timeout(60):
        await asyncio.gather(come(12), come(12), come(12), go(), go())
        await go()
    assert {row["status"] for row in await store.all()} <= set(TERMINAL) and len(left) == 37
