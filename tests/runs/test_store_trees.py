"""Parents and children in the store: starts, parks, cancels in any order, usage on its way up, budgets."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from seed.sessions.v1 import types_pb2

from libs.store import Outbox
from services.runs.store.endings import Ending
from services.runs.store.family import Family, Park
from services.runs.store.queue import Queue
from services.runs.store.tables import outbox as outbox_rows
from services.runs.store.tables import runs
from tests.runs.house import LEASE_MS, Store, new_id, turn

COUNTS = ("input", "output", "cacheRead", "cacheWrite", "total")


def tokens(count: int) -> bytes:
    return json.dumps(dict.fromkeys(COUNTS, count)).encode()


@dataclass
class House:
    """A store with what concerns families."""

    store: Store
    family: Family = field(init=False)

    def __post_init__(self) -> None:
        self.family = Family(self.store.db, self.outbox(), self.store.clock)

    def outbox(self) -> Outbox:
        return Outbox(self.store.db, outbox_rows, lambda subject, body: True)

    async def running(self, **more: Any) -> str:
        """Id of a run that a worker holds."""
        run_id = await self.store.started(**more)
        await self.store.queue.claim("w", 100)
        return run_id

    def child_of(self, parent: str, call: str = "call", depth: int = 1) -> types_pb2.TurnStart:
        return turn(
            new_id(), origin="agent", parent_run_id=parent, root_run_id=parent, parent_tool_call_id=call, depth=depth
        )

    async def parked(self, run_id: str, *children: types_pb2.TurnStart, usage: bytes | None = None) -> Any:
        attempt = (await self.store.row(run_id))["attempt"]
        calls = [child.parent_tool_call_id for child in children]
        return await self.family.park(run_id, attempt, Park(children, calls, usage=usage))

    async def below(self, run_id: str) -> dict[str, int] | None:
        body = (await self.store.row(run_id))["children_usage"]
        return json.loads(body) if body else None

    async def end(self, run_id: str, used: int, status: str = "succeeded") -> None:
        row = await self.store.row(run_id)
        ended = await self.store.queue.complete(
            run_id, row["attempt"], Ending(status, usage=tokens(used)), row["parent_run_id"]
        )
        assert ended is not None


@pytest_asyncio.fixture
async def house(store: Store) -> House:
    return House(store)


async def test_a_child_of_who_has_ended_ends_at_once(house: House) -> None:
    parent = await house.running()
    awaited, detached = house.child_of(parent), house.child_of(parent, call="")
    await house.end(parent, 1)
    row, new = await house.store.queue.start(awaited, "")
    assert new and (row["status"], row["answered"]) == ("canceled", True)
    row, _ = await house.store.queue.start(detached, "")
    assert row["status"] == "queued"


async def test_nothing_starts_below_a_canceled_run(house: House) -> None:
    parent = await house.running()
    await house.store.trees.cancel_run(parent)
    for child in (house.child_of(parent), house.child_of(parent, call="")):
        assert (await house.store.queue.start(child, ""))[0]["status"] == "canceled"
    late = house.child_of(parent)
    row = await house.parked(parent, late)
    assert row is not None and row["status"] == "running"
    assert await house.store.status(late.run_id) == "canceled"


async def test_a_lost_claim_does_not_park(house: House) -> None:
    parent = await house.running()
    house.store.clock.ms += LEASE_MS + 1
    await house.store.queue.expire()
    child = house.child_of(parent)
    assert await house.parked(parent, child) is None
    assert await house.store.trees.get(child.run_id) is None


@pytest.mark.parametrize("_", range(5))
async def test_a_cancel_meets_a_park(house: House, _: int) -> None:
    """Whoever comes first, nothing below the canceled run stays alive."""
    parent = await house.running()
    kids = [house.child_of(parent, f"call-{n}") for n in range(3)]
    await asyncio.gather(house.parked(parent, *kids), house.store.trees.cancel_run(parent))
    for kid in kids:
        assert await house.store.status(kid.run_id) == "canceled"
    assert await house.store.status(parent) in ("running", "canceled")
    assert (await house.store.row(parent))["cancel_requested"]


async def test_usage_goes_up_from_runs_that_are_canceled(house: House) -> None:
    root = await house.running()
    middle = house.child_of(root)
    await house.parked(root, middle, usage=tokens(1))
    await house.store.queue.claim("w", 100)
    waiting, running = house.child_of(middle.run_id, "a", 2), house.child_of(middle.run_id, "b", 2)
    await house.parked(middle.run_id, running, waiting, usage=tokens(2))
    await house.store.queue.claim("w", 100)
    leaf = house.child_of(waiting.run_id, "c", 3)
    await house.parked(waiting.run_id, leaf, usage=tokens(4))
    done = await house.store.trees.cancel_run(middle.run_id)
    assert {row["id"] for row in done.ended} == {middle.run_id, waiting.run_id, leaf.run_id}
    assert {row["id"] for row in done.asked} == {running.run_id}
    assert await house.below(middle.run_id) == {**dict.fromkeys(COUNTS, 4), "runs": 2}
    assert await house.below(root) == {**dict.fromkeys(COUNTS, 6), "runs": 3}
    # What ends after its parent has told its usage already, is told to those above as well.
    await house.end(running.run_id, 8, "canceled")
    assert await house.below(middle.run_id) == {**dict.fromkeys(COUNTS, 12), "runs": 3}
    assert await house.below(root) == {**dict.fromkeys(COUNTS, 14), "runs": 4}


async def test_only_the_runs_of_what_was_deleted_are_gone(house: House) -> None:
    parent = await house.running()
    child = house.child_of(parent)
    await house.parked(parent, child)
    await house.store.queue.claim("w", 100)
    session = (await house.store.row(parent))["session_id"]
    done = await house.store.trees.detach("session_id", session)
    assert [(row["id"], row["gone"]) for row in done.ended] == [(parent, "Session")]
    assert [row["id"] for row in done.asked] == [child.run_id]


async def test_results_wake_nobody_that_a_budget_paused(house: House) -> None:
    parent = await house.running()
    child = house.child_of(parent)
    await house.parked(parent, child)
    await house.store.queue.claim("w", 100)
    await house.end(child.run_id, 1)
    await house.store.write("UPDATE runs SET status = 'running' WHERE id = $1", parent)
    paused = await house.family.park(parent, 1, Park(pause="Enough."))
    assert paused is not None and json.loads(paused["wait"]) == {"reason": "budget-pause", "label": "Enough."}
    [answer] = await house.family.unanswered()
    assert await house.family.answered(answer) is None
    assert await house.store.status(parent) == "waiting"


async def test_a_paused_run_goes_on_without_a_budget(house: House) -> None:
    queue = Queue(house.store.db, house.outbox(), lease_ms=LEASE_MS, now=house.store.clock, budget_ms=5)
    row, _ = await queue.start(turn(new_id()), "")
    assert row["budget_ms"] == 5
    assert await queue.resume(row["id"]) is None
    await queue.claim("w", 1)
    await house.family.park(row["id"], 1, Park(pause="Enough."))
    resumed = await queue.resume(row["id"])
    assert resumed is not None
    assert (resumed["status"], resumed["wait"], resumed["budget_ms"]) == ("queued", None, None)
    assert await queue.resume(row["id"]) is None and await queue.resume("nothing") is None


async def test_leases_that_ran_out_are_counted_until_the_run_gets_on(house: House) -> None:
    run_id = await house.running()
    for count in (1, 2):
        house.store.clock.ms += LEASE_MS + 1
        await house.store.queue.expire()
        await house.store.queue.claim("w", 1)
        assert (await house.store.row(run_id))["expiries"] == count
    await house.store.queue.store_usage(run_id, 3, tokens(1))
    assert (await house.store.row(run_id))["expiries"] == 0


async def test_what_a_run_is_about_to_end_with_is_there_for_a_later_claim(house: House) -> None:
    run_id = await house.running()
    await house.store.queue.keep(run_id, 1, output=b"1", unmet=b"[]", used=tokens(3))
    await house.store.queue.keep(run_id, 0, output=b"2", unmet=None, used=None)
    row = await house.store.row(run_id)
    assert (row["output"], row["unmet_obligations"], row["usage"]) == (b"1", b"[]", tokens(3))
    assert row["status"] == "running" and "output" in runs.c
