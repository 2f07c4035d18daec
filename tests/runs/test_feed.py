"""Which runs have ended, in an order that nothing is put into; signals that are delivered once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import Invalid
from libs.store import Outbox
from services.runs.store.endings import Ending
from services.runs.store.feed import Feed, Position
from services.runs.store.tables import outbox as outbox_rows
from tests.runs.house import Store, new_id


def feed_of(store: Store) -> Feed:
    return Feed(store.db, Outbox(store.db, outbox_rows, lambda *_: True), store.clock)


async def end(store: Store, status: str = "succeeded", **more: Any) -> str:
    """Id of a run that has ended so."""
    run_id = await store.started()
    await store.queue.claim("w", 100)
    attempt = (await store.row(run_id))["attempt"]
    await store.queue.complete(run_id, attempt, Ending(status, **more))
    return run_id


async def ended(feed: Feed, after: Position, limit: int = 100) -> tuple[list[Any], Position]:
    found = await feed.ended(after, limit)
    return [row for _, row in found], found[-1][0] if found else after


async def last(feed: Feed) -> Position:
    """The place after all that has ended."""
    position = Position()
    while True:
        rows, position = await ended(feed, position, 1000)
        if not rows:
            return position


async def test_every_end_is_told_once_in_order(store: Store) -> None:
    feed = feed_of(store)
    start = await last(feed)
    error = json.dumps({"code": "x", "message": "Away"}).encode()
    done = await end(store)
    failed = await end(store, "failed", error=error)
    queued = await store.started()
    await store.trees.cancel_run(queued)
    alive = await store.started()
    rows, position = await ended(feed, start)
    assert [(row["id"], row["status"]) for row in rows] == [
        (done, "succeeded"), (failed, "failed"), (queued, "canceled"),
    ]  # fmt: skip
    assert json.loads(rows[1]["error"])["message"] == "Away"
    # A later change of an ended run is no end.
    await store.write("UPDATE runs SET status = status, title = 'other' WHERE id = $1", done)
    assert (await ended(feed, position))[0] == []
    await store.trees.cancel_run(alive)
    assert [row["id"] for row in (await ended(feed, position))[0]] == [alive]
    assert len((await ended(feed, start, 1))[0]) == 1


async def test_nothing_is_put_before_what_was_read(store: Store) -> None:
    """A run that is ended by a transaction that began early and commits late comes after, and does come."""
    feed = feed_of(store)
    start = await last(feed)
    slow, quick = await store.started(), await store.started()
    ending = "UPDATE runs SET status = 'canceled' WHERE id = $1"
    async with store.db.connection() as connection:
        async with connection.transaction():
            await connection.execute(ending, slow)
            await store.write(ending, quick)
            # The quick one is younger than a running transaction: it has to wait.
            assert (await ended(feed, start))[0] == []
    rows, _ = await ended(feed, start)
    assert [row["id"] for row in rows] == [slow, quick]


async def test_what_was_dealt_with_is_forgotten(store: Store) -> None:
    feed = feed_of(store)
    start = await last(feed)
    ids = [await end(store) for _ in range(3)]
    rows, position = await ended(feed, start, 2)
    assert [row["id"] for row in rows] == ids[:2]
    assert [row["id"] for row in (await ended(feed, position))[0]] == ids[2:]
    assert [row["id"] for row in (await ended(feed, start))[0]] == ids[2:]


async def test_many_ends_at_once_are_all_told(store: Store) -> None:
    feed = feed_of(store)
    start = await last(feed)
    ids = [await store.started() for _ in range(40)]
    ends = [asyncio.create_task(store.trees.cancel_run(run_id)) for run_id in ids]
    seen: list[str] = []
    position = start
    async with asyncio.timeout(20):
        while len(seen) < len(ids):
            rows, position = await ended(feed, position, 7)
            seen += [row["id"] for row in rows]
    await asyncio.gather(*ends)
    assert sorted(seen) == sorted(ids)


@given(st.builds(Position, st.integers(0, 2**62), st.integers(0, 2**62)))
def test_positions_are_read_back(position: Position) -> None:
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize("text", ["x", "1", "1-", "-1", "1-x", "1-2-3", "١-2", "9" * 50 + "-1"])
def test_positions_that_were_never_given(text: str) -> None:
    with pytest.raises(Invalid):
        Position.parse(text)
    assert Position.parse("") == Position()


async def paused(store: Store) -> str:
    """Id of a run whose budget paused it."""
    run_id = await store.started()
    await store.write(
        "UPDATE runs SET status = 'waiting', budget_ms = 1, wait = $2 WHERE id = $1",
        run_id,
        json.dumps({"reason": "budget-pause"}).encode(),
    )
    return run_id


async def test_a_signal_wakes_once(store: Store) -> None:
    feed, run_id = feed_of(store), await paused(store)
    account = (await store.row(run_id))["account"]
    delivery = new_id()
    assert await feed.deliver(new_id(), "somebody else", run_id) is None
    assert await feed.deliver(new_id(), account, "") is None
    assert await feed.deliver(new_id(), account, new_id()) is None
    found = await asyncio.gather(*(feed.deliver(delivery, account, run_id) for _ in range(5)))
    assert found == [run_id] * 5
    row = await store.row(run_id)
    assert (row["status"], row["budget_ms"], row["wait"]) == ("queued", None, None)
    assert await feed.deliver(new_id(), account, run_id) is None
    # A repeat says what the first did, and does not wake the run again that has paused meanwhile.
    await store.write(
        "UPDATE runs SET status = 'waiting', wait = $2 WHERE id = $1",
        run_id,
        json.dumps({"reason": "budget-pause"}).encode(),
    )
    assert await feed.deliver(delivery, account, run_id) == run_id
    assert await store.status(run_id) == "waiting"


async def test_who_waits_for_children_takes_no_signal(store: Store) -> None:
    feed, run_id = feed_of(store), await paused(store)
    await store.write("UPDATE runs SET wait = $2 WHERE id = $1", run_id, json.dumps({"reason": "children"}).encode())
    assert await feed.deliver(new_id(), (await store.row(run_id))["account"], run_id) is None
