"""Rows of triggers and firings on a real PostgreSQL, under a clock that tests move."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from seed.events.v1 import events_pb2

from libs.errors import Conflict, NotFound
from libs.store import Database, Outbox, Row
from services.triggers.domain.completed import EndedRun, activation
from services.triggers.domain.definition import Rules
from services.triggers.domain.firing import Activation
from services.triggers.monitor.carriers import Carriers
from services.triggers.monitor.clock import Clock
from services.triggers.store.cursors import CursorStore
from services.triggers.store.firings import Admitted, FiringStore
from services.triggers.store.tables import outbox
from services.triggers.store.triggers import Request, TriggerStore

MINUTE = 60_000
START = 1_800_000_000_000


class House:
    """The stores, whose time is `now`."""

    def __init__(self, db: Database) -> None:
        self.db, self.now = db, START
        self.agent = str(uuid.uuid4())
        self.told: list[str] = []
        telling = Outbox(db, outbox, self._publish)
        self.triggers = TriggerStore(db, telling, now=lambda: self.now)
        self.firings = FiringStore(db, telling, now=lambda: self.now, sweep_ms=5_000)
        self.rules = Rules(lambda: uuid.uuid4().hex, webhooks=True)
        self.carried: list[Row] = []

    def _publish(self, _: str, body: bytes) -> bool:
        self.told.append(events_pb2.Event.FromString(body).account_hint.reason)
        return True

    async def trigger(self, source: dict[str, Any] | None = None, **more: Any) -> str:
        new = {"name": "T", "prompt": "Look.", "source": source or {"type": "webhook"}, **more}
        return (await self.triggers.create("acc", self.agent, self.rules.trigger(new))).trigger.id

    async def schedule(self, **schedule: Any) -> str:
        return await self.trigger({"type": "schedule", "schedule": schedule})

    async def patch(self, trigger_id: str, **patch: Any) -> Row:
        return await self.triggers.update(trigger_id, self.rules.patch(patch), None)

    async def admit(self, trigger_id: str, key: str = "k", digest: bytes | None = None) -> Admitted | None:
        return await self.firings.admit(trigger_id, lambda _: Activation(key, {"type": "x"}, "Sum", digest=digest))

    async def fire(self, trigger_id: str, key: str = "k") -> Row:
        admitted = await self.admit(trigger_id, key)
        assert admitted is not None and admitted.firing is not None
        return admitted.firing

    async def look(self, at: int) -> list[Row]:
        """What a monitor finds due at a time, oldest trigger first."""
        self.now = at

        async def carry_out(firing: Row) -> None:
            self.carried.append(firing)

        carriers, before = Carriers(carry_out), len(self.carried)
        await Clock(self.firings, carriers).look()
        await carriers.close()
        return [firing for firing in self.carried[before:] if firing["agent_id"] == self.agent]

    async def firing(self, trigger_id: str) -> Row:
        """The newest firing."""
        return (await self.triggers.firings(trigger_id))[0][0]


@pytest.fixture
async def house(triggers_url: str) -> AsyncIterator[House]:
    db = Database(triggers_url, size=8)
    await db.open()
    try:
        made = House(db)
        yield made
        await made.triggers.drop_agent(made.agent)
    finally:
        await db.close()


async def test_an_interval_drifts_and_catches_up_once(house: House) -> None:
    trigger_id = await house.schedule(kind="interval", every=15, unit="minutes")
    assert await house.look(START + 15 * MINUTE - 1) == []
    house.told.clear()
    [fired] = await house.look(START + 47 * MINUTE)
    assert house.told == []
    assert fired["firing_key"] == f"schedule:{trigger_id}:{START + 15 * MINUTE}"
    row = await house.triggers.get(trigger_id)
    assert (row["last_fired_at"], row["due_at"]) == (START + 47 * MINUTE, START + 62 * MINUTE)
    # Carrying it out later, or finding nobody, moves no rhythm.
    house.now += 5 * MINUTE
    await house.firings.started(fired, "s1")
    assert (await house.triggers.get(trigger_id))["last_fired_at"] == START + 47 * MINUTE
    assert await house.look(START + 62 * MINUTE - 1) == []
    [again] = await house.look(START + 62 * MINUTE)
    await house.firings.woke(again, delivered=False)
    assert len(await house.look(START + 77 * MINUTE)) == 1
    assert (await house.firing(trigger_id))["status"] == "created"


async def test_what_is_due_fires_by_age_and_what_is_off_does_not(house: House) -> None:
    second = {"type": "schedule", "schedule": {"kind": "once", "runAt": 5}}
    ids = []
    for _ in range(3):
        ids.append(await house.trigger(second))
        house.now += 1
    off = await house.trigger(second, enabled=False)
    fired = await house.look(house.now)
    assert [firing["trigger_id"] for firing in fired] == ids
    assert (await house.triggers.get(off))["due_at"] is None
    rows = [await house.triggers.get(trigger_id) for trigger_id in ids]
    assert all(not row["enabled"] and row["due_at"] is None for row in rows)


async def test_many_monitors_fire_a_schedule_once(house: House) -> None:
    trigger_id = await house.schedule(kind="once", runAt=START + MINUTE)
    house.now = START + MINUTE
    found = await asyncio.gather(*(house.firings.admit_due(trigger_id) for _ in range(20)))
    assert len([firing for firing in found if firing is not None]) == 1
    assert await house.firings.admit_due(trigger_id) is None


async def test_once_again(house: House) -> None:
    trigger_id = await house.schedule(kind="once", runAt=START + MINUTE)
    house.told.clear()
    assert len(await house.look(START + MINUTE)) == 1
    # It is off now.
    assert house.told == ["trigger-updated"]
    assert (await house.patch(trigger_id, enabled=True))["due_at"] is None
    assert await house.look(START + 2 * MINUTE) == []
    moved = {"type": "schedule", "schedule": {"kind": "once", "runAt": START + 3 * MINUTE}}
    assert (await house.patch(trigger_id, source=moved, enabled=True))["due_at"] == START + 3 * MINUTE
    assert len(await house.look(START + 3 * MINUTE)) == 1


async def test_an_edited_schedule_keeps_when_it_fired(house: House) -> None:
    trigger_id = await house.schedule(kind="interval", every=10, unit="minutes")
    await house.look(START + 10 * MINUTE)
    hourly = {"type": "schedule", "schedule": {"kind": "interval", "every": 1, "unit": "hours"}}
    row = await house.patch(trigger_id, source=hourly)
    assert (row["last_fired_at"], row["due_at"]) == (START + 10 * MINUTE, START + 70 * MINUTE)
    assert (await house.patch(trigger_id, source={"type": "webhook"}))["due_at"] is None
    assert (await house.patch(trigger_id, enabled=False, source=hourly))["due_at"] is None
    # Periods that were missed while it was off are one.
    house.now = START + 300 * MINUTE
    await house.patch(trigger_id, enabled=True)
    assert len(await house.look(START + 300 * MINUTE)) == 1
    assert await house.look(START + 301 * MINUTE) == []


async def test_a_key_fires_once_whoever_asks(house: House) -> None:
    one, other = await house.trigger(), await house.trigger()
    found = await asyncio.gather(*(house.admit(one) for _ in range(20)))
    assert len([a for a in found if a is not None and a.firing is not None]) == 1
    assert await house.admit(one) == Admitted(None)
    assert (await house.fire(other))["trigger_id"] == other
    await house.patch(one, enabled=False)
    assert await house.admit(one, "new") is None
    assert await house.admit("nothing", "new") is None
    assert await house.firings.admit(other, lambda _: None) is None


async def test_a_repeated_delivery_must_be_the_same(house: House) -> None:
    trigger_id = await house.trigger()
    assert (await house.admit(trigger_id, "k", b"1")).firing is not None  # pyright: ignore[reportOptionalMemberAccess]
    assert await house.admit(trigger_id, "k", b"1") == Admitted(None)
    with pytest.raises(Conflict):
        await house.admit(trigger_id, "k", b"2")


async def test_keys_that_text_cannot_hold(house: House) -> None:
    trigger_id = await house.trigger()
    assert "\ufffd" in (await house.fire(trigger_id, "a\0b"))["firing_key"]
    assert (await house.fire(trigger_id, "half \ud800"))["firing_key"] == "half ?"


async def test_what_becomes_of_a_firing(house: House) -> None:
    trigger_id = await house.trigger()
    firing = await house.fire(trigger_id)
    assert (firing["status"], firing["next_at"]) == ("created", START + 5_000)
    assert (await house.triggers.get(trigger_id))["last_fired_at"] is None
    house.told.clear()
    await house.firings.failed(firing, "It is \0 broken")
    assert house.told == ["trigger-updated"]
    row, failed = await house.triggers.get(trigger_id), await house.firing(trigger_id)
    assert (failed["status"], failed["error"], row["last_error"]) == (
        "error",
        "It is \ufffd broken",
        "It is \ufffd broken",
    )
    house.now += 1
    await house.firings.started(await house.fire(trigger_id, "k2"), "s1")
    row, started = await house.triggers.get(trigger_id), await house.firing(trigger_id)
    assert (started["status"], started["session_id"], started["context"], started["next_at"]) == (
        "created",
        "s1",
        None,
        None,
    )
    assert (row["last_error"], row["last_fired_at"]) == (None, START + 1)
    await house.firings.run_failed(started["id"], "The model is away")
    await house.firings.run_failed(started["id"], "Told again")
    row, late = await house.triggers.get(trigger_id), await house.firing(trigger_id)
    assert (late["status"], late["error"], late["session_id"], row["last_error"]) == (
        "error", "The model is away", "s1", "The model is away",
    )  # fmt: skip
    assert (await house.patch(trigger_id, name="N"))["last_error"] is None
    assert (await house.triggers.get(trigger_id))["last_fired_at"] == START + 1
    await house.firings.run_failed("nothing", "x")


async def test_the_sweep_takes_what_is_left_after_growing_pauses(house: House) -> None:
    trigger_id = await house.trigger()
    firing = await house.fire(trigger_id)

    async def left() -> list[Row]:
        return [row for row in await house.firings.take_left() if row["trigger_id"] == trigger_id]

    assert await left() == []
    pauses = []
    for _ in range(7):
        due = (await house.firing(trigger_id))["next_at"]
        pauses.append(due - house.now)
        house.now = due
        takers = await asyncio.gather(left(), left())
        assert sorted(map(len, takers)) == [0, 1]
    assert pauses == [5_000, 5_000, 10_000, 20_000, 40_000, 60_000, 60_000]
    await house.firings.started(firing, "s1")
    house.now += 10 * MINUTE
    assert await left() == []


async def test_a_deleted_trigger_is_forgotten_until_sessions_has_done_so(house: House) -> None:
    trigger_id = await house.trigger()
    firing = await house.fire(trigger_id)
    await house.triggers.delete(trigger_id)
    with pytest.raises(NotFound):
        await house.triggers.get(trigger_id)
    with pytest.raises(NotFound):
        await house.triggers.delete(trigger_id)
    assert trigger_id in await house.firings.take_deletions()
    assert trigger_id not in await house.firings.take_deletions()
    house.now += MINUTE
    assert trigger_id in await house.firings.take_deletions()
    await house.firings.forgotten(trigger_id)
    house.now += MINUTE
    assert trigger_id not in await house.firings.take_deletions()
    # Its session was started while it was deleted.
    await house.firings.started(firing, "s1")
    assert trigger_id in await house.firings.take_deletions()
    await house.firings.forgotten(trigger_id)


async def test_changes_tell_states_apart(house: House) -> None:
    trigger_id = await house.trigger()
    seen = [(await house.triggers.get(trigger_id))["updated_at"]]
    seen += [(await house.patch(trigger_id, name=f"N{n}"))["updated_at"] for n in range(3)]
    assert sorted(set(seen)) == seen
    with pytest.raises(Conflict, match="changed elsewhere"):
        await house.triggers.update(trigger_id, {"name": "x"}, seen[0])
    await house.firings.started(await house.fire(trigger_id), "s1")
    assert (await house.triggers.get(trigger_id))["updated_at"] == seen[-1]


async def test_equal_requests_in_flight_make_one(house: House) -> None:
    request = Request(f"acc-{house.agent}", "r", b"same")
    new = house.rules.trigger({"name": "T", "prompt": "p", "source": {"type": "webhook"}})
    made = await asyncio.gather(*(house.triggers.create("acc", house.agent, new, request) for _ in range(8)))
    assert all(one == made[0] for one in made) and made[0].webhook_nonce
    assert len(await house.triggers.of_agent(house.agent)) == 1
    with pytest.raises(Conflict, match="payload mismatch"):
        await house.triggers.create("acc", house.agent, new, Request(request.account, "r", b"other"))
    await house.patch(made[0].trigger.id, name="Renamed")
    again = await house.triggers.created_before(request)
    assert again is not None and again.trigger.name == "T"


async def test_which_firing_a_run_came_from(house: House) -> None:
    trigger_id = await house.trigger({"type": "run-completed"})
    end = activation(EndedRun("r2", "r1", "acc", house.agent, "s", "Title", "succeeded"))
    admitted = await house.firings.admit(trigger_id, lambda _: end)
    assert admitted is not None and admitted.firing is not None
    assert await house.firings.cause(admitted.firing["id"]) == (trigger_id, "r1")
    assert await house.firings.cause("nothing") is None
    accounts = await house.firings.accounts_with("run-completed", ["acc", "acc", "other"])
    assert accounts == {"acc"}


async def test_a_cursor_is_held_by_one_and_moves_when_all_went_well(house: House) -> None:
    cursors, feed = CursorStore(house.db), f"feed-{house.agent}"
    async with cursors.hold(feed) as mine:
        assert mine is not None and mine.position == ""
        async with cursors.hold(feed) as theirs:
            assert theirs is None
        await mine.move("5")
    with pytest.raises(RuntimeError):
        async with cursors.hold(feed) as mine:
            assert mine is not None and mine.position == "5"
            await mine.move("6")
            raise RuntimeError
    async with cursors.hold(feed) as mine:
        assert mine is not None and mine.position == "5"
