"""Runs that took too long, and runs that kill who executes them."""

from __future__ import annotations

import json

from services.runs.worker.turn import CRASHED, MOST_EXPIRIES
from tests.runs.house import until
from tests.runs.workshop import Workshop


async def _set(shop: Workshop, run_id: str, column: str, value: int) -> None:
    async with shop.db.connection() as connection:
        await connection.execute(f"UPDATE runs SET {column} = $1 WHERE id = $2", value, run_id)


async def test_a_spent_budget_pauses_the_run_until_it_is_signaled(shop: Workshop) -> None:
    start = await shop.say()
    await _set(shop, start.run_id, "budget_ms", 0)
    await shop.worker()
    row = await shop.reached(start.run_id, "waiting")
    wait = json.loads(row["wait"])
    assert wait["reason"] == "budget-pause" and "time" in wait["label"]
    assert (row["worker"], row["lease_until"], row["output"]) == (None, None, None)
    # Who waits for the turn is told that it will take a while.
    await until(lambda: shop.settled)
    assert shop.settled[0].status == "waiting"
    assert shop.provider.requests == []
    assert await shop.queue.resume(start.run_id) is not None
    row = await shop.ended(start.run_id, within_s=60)
    assert (row["status"], row["wait"], row["budget_ms"]) == ("succeeded", None, None)
    assert shop.sessions.conversation(start.session_id).log[-1]["content"] == "Hello from the scripted model."


async def test_a_paused_run_can_be_canceled(shop: Workshop) -> None:
    start = await shop.say()
    await _set(shop, start.run_id, "budget_ms", 0)
    await shop.worker()
    await shop.reached(start.run_id, "waiting")
    done = await shop.trees.cancel_run(start.run_id)
    assert [row["status"] for row in done.ended] == ["canceled"]
    assert await shop.queue.resume(start.run_id) is None


async def test_a_budget_that_is_not_spent_changes_nothing(shop: Workshop) -> None:
    start = await shop.say()
    await _set(shop, start.run_id, "budget_ms", 600_000)
    await shop.worker()
    assert (await shop.ended(start.run_id))["status"] == "succeeded"


async def test_a_run_that_kills_its_workers_is_given_up(shop: Workshop) -> None:
    start = await shop.say()
    await _set(shop, start.run_id, "expiries", MOST_EXPIRIES)
    await shop.worker()
    row = await shop.ended(start.run_id)
    assert (row["status"], json.loads(row["error"])) == ("failed", {"code": "executor-error", "message": CRASHED})
    assert shop.provider.requests == []
    assert shop.sessions.conversation(start.session_id).log[-1] == {"type": "error", "message": CRASHED}


async def test_one_that_killed_fewer_is_tried_again(shop: Workshop) -> None:
    start = await shop.say()
    await _set(shop, start.run_id, "expiries", MOST_EXPIRIES - 1)
    await shop.worker()
    assert (await shop.ended(start.run_id))["status"] == "succeeded"
