"""Feeds, leases and firings of the activity feed on a real PostgreSQL, with monitors that share and fail."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import sqlalchemy as sa

from libs import wire
from libs.clock import now_ms
from libs.errors import Conflict, NotFound
from libs.hypermedia.feed import FeedPage
from libs.hypermedia.server import AskFailed
from libs.store import Database, Outbox, Row, param, sql
from services.triggers.domain.activity.shapes import Activity
from services.triggers.domain.activity.watermark import Keyed, keyed
from services.triggers.domain.definition import Rules
from services.triggers.monitor.activity import ActivityMonitor, Pace
from services.triggers.store.activity import ActivityStore
from services.triggers.store.combining import Combination, CombineStore
from services.triggers.store.feeds import FeedStore, Lease, LeaseLost
from services.triggers.store.firings import FiringStore
from services.triggers.store.tables import outbox, seen_events, trigger_firings, triggers, watermarks
from services.triggers.store.triggers import TriggerStore
from tests.support.kit import until
from tests.triggers.events import block, comment

pytestmark = pytest.mark.asyncio(loop_scope="module")
DOCUMENT = {"type": "document-comment", "resource": "hm://site/notes"}
PACE = Pace(interval_ms=50, page_size=3, max_pages=2, lease_ms=10_000)
_ids = itertools.count()


class Timeline:
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead_ms


class House:
    """The stores of one process, and a feed in memory."""

    def __init__(self, db: Database) -> None:
        self.db, self.now = db, Timeline()
        quiet = Outbox(db, outbox, lambda *_: True)
        self.triggers = TriggerStore(db, quiet, now=self.now)
        self.firings = FiringStore(db, quiet, now=self.now, sweep_ms=5_000)
        self.feeds = FeedStore(db, now=self.now, page_size=PACE.page_size, max_pages=PACE.max_pages)
        self.activity = ActivityStore(db, self.feeds, self.firings, now=self.now)
        self.rules = Rules(lambda: uuid.uuid4().hex, webhooks=True)

    async def trigger(self, account: str, source: dict[str, Any] | None = None, *, enabled: bool = True) -> str:
        new = self.rules.trigger({"name": "T", "enabled": enabled, "source": source or DOCUMENT, "prompt": "Do."})
        return (await self.triggers.create(account, f"agent-of-{account}", new)).trigger.id

    async def lease(self, account: str, for_ms: int = 10_000) -> Lease:
        """A lease of this account's feed; all others that are due are taken too."""
        await self.feeds.enroll()
        return next(each for each in await self.feeds.lease(1000, for_ms) if each.account == account)

    async def fired(self, account: str) -> list[str]:
        """Keys of its firings, oldest first."""
        asked = sa.select(trigger_firings.c.firing_key).where(trigger_firings.c.account == param("account", sa.Text))
        ordered = asked.order_by(trigger_firings.c.fired_at, trigger_firings.c.firing_key)
        return [row[0] for row in await self.db.fetch(sql(ordered), account=account)]

    async def watermark(self, account: str) -> Row | None:
        asked = sa.select(watermarks).where(watermarks.c.account == param("account", sa.Text))
        return await self.db.fetchrow(sql(asked), account=account)


class Feeds:
    """What accounts see, newest first; how often each was asked."""

    def __init__(self) -> None:
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.asked: dict[str, int] = {}
        self.hangs: set[str] = set()
        self.fails: set[str] = set()

    async def page(self, account: str, size: int, token: str = "") -> FeedPage:
        self.asked[account] = self.asked.get(account, 0) + 1
        if account in self.fails:
            raise AskFailed("HTTP 500")
        if account in self.hangs:
            await asyncio.Event().wait()
        events = self.events.get(account, [])
        start = int(token or 0)
        return FeedPage(events[start : start + size], str(start + size) if start + size < len(events) else "")


@pytest_asyncio.fixture(loop_scope="module")
async def house(triggers_url: str) -> AsyncIterator[House]:
    db = Database(triggers_url, size=8)
    await db.open()
    await db.execute(sql(sa.delete(triggers)))
    await db.execute(sql(sa.delete(watermarks)))
    yield House(db)
    await db.close()


def account() -> str:
    return f"z6Mk{next(_ids):04}"


def event(cid: str, **more: Any) -> Keyed:
    return keyed([Activity(comment(cid, **more))])[0]


async def test_only_accounts_that_need_it_have_a_feed(house: House) -> None:
    wanted, clock, off = account(), account(), account()
    await house.trigger(wanted)
    await house.trigger(clock, {"type": "schedule", "schedule": {"kind": "interval", "every": 1, "unit": "hours"}})
    sleeping = await house.trigger(off, enabled=False)
    hooked = account()
    await house.trigger(hooked, {"type": "webhook"})
    await house.feeds.enroll()
    assert {lease.account for lease in await house.feeds.lease(10, 0)} == {wanted, hooked}
    assert await house.feeds.since(hooked) is None
    await house.triggers.update(sleeping, {"enabled": True}, None)
    for trigger in await house.triggers.of_agent(f"agent-of-{wanted}"):
        await house.triggers.delete(trigger["id"])
    house.now.ahead_ms += 1
    await house.feeds.enroll()
    assert {lease.account for lease in await house.feeds.lease(10, 0)} == {off, hooked}


async def test_a_feed_that_rested_has_a_first_poll_again_and_knows_what_it_saw(house: House) -> None:
    mine = account()
    trigger = await house.trigger(mine)
    lease = await house.lease(mine)
    await house.feeds.baseline(lease, ["a"])
    await house.feeds.begun(lease)
    await house.feeds.release(lease, 0, None)
    await house.triggers.update(trigger, {"enabled": False}, None)
    await house.feeds.enroll()
    assert not await house.feeds.lease(10, 0) and await house.feeds.troubled() == (0, 0)
    await house.triggers.update(trigger, {"enabled": True}, None)
    again = await house.lease(mine, 0)
    assert not again.begun and await house.feeds.seen(mine, ["a", "b"]) == {"a"}
    await house.triggers.update(trigger, {"enabled": False}, None)
    house.now.ahead_ms += 1
    await house.feeds.enroll()
    assert await house.watermark(mine) is not None
    house.now.ahead_ms += 31 * 86_400_000
    await house.feeds.enroll()
    assert await house.watermark(mine) is None and not await house.feeds.seen(mine, ["a"])


async def test_a_feed_is_leased_once_until_the_lease_ends(house: House) -> None:
    mine = account()
    await house.trigger(mine)
    lease = await house.lease(mine)
    assert not await house.feeds.lease(10, 10_000)
    house.now.ahead_ms += 11_000
    (later,) = await house.feeds.lease(10, 10_000)
    assert (later.account, later.begun) == (mine, False) and later.token != lease.token
    for lost in (
        house.feeds.renew(lease, 10_000),
        house.feeds.baseline(lease, ["k"]),
        house.activity.handle(lease, event("bafy1")),
    ):
        with pytest.raises(LeaseLost):
            await lost
    assert await house.fired(mine) == [] and not await house.feeds.seen(mine, ["k", "blob-bafy1"])
    await house.feeds.release(lease, 0, "mine no more")
    stored = await house.watermark(mine)
    assert stored is not None and (stored["lease"], stored["last_error"]) == (later.token, None)


async def test_a_failed_poll_keeps_what_was_handled_and_says_why(house: House) -> None:
    mine = account()
    await house.trigger(mine)
    lease = await house.lease(mine)
    await house.feeds.baseline(lease, ["b", "a"])
    await house.feeds.begun(lease)
    await house.feeds.release(lease, 7, "HTTP 500")
    stored = await house.watermark(mine)
    assert stored is not None
    assert (stored["last_error"], stored["checked_at"], stored["next_at"]) == ("HTTP 500", None, 7)
    assert await house.feeds.troubled() == (1, 1)
    lease = await house.lease(mine)
    assert lease.begun and await house.feeds.seen(mine, ["a", "b", "c"]) == {"a", "b"}
    await house.feeds.release(lease, 7, None)
    stored = await house.watermark(mine)
    assert stored is not None and stored["last_error"] is None and stored["checked_at"] is not None


async def test_firing_and_watermark_are_one(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = account()
    await house.trigger(mine)
    lease = await house.lease(mine)

    async def dies(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(house.feeds, "remember", dies)
        with pytest.raises(RuntimeError):
            await house.activity.handle(lease, event("bafy1"))
    assert await house.fired(mine) == []
    assert len(await house.activity.handle(lease, event("bafy1"))) == 1
    assert await house.activity.handle(lease, event("bafy1")) == []
    assert await house.fired(mine) == ["blob-bafy1"]
    assert await house.feeds.seen(mine, ["blob-bafy1"]) == {"blob-bafy1"}


async def test_triggers_fire_by_their_age_and_one_that_is_not_understood_holds_up_none(house: House) -> None:
    mine = account()
    first, odd, last = [await house.trigger(mine) for _ in range(3)]
    await house.db.execute(
        sql(sa.update(triggers).where(triggers.c.id == param("id", sa.Text)).values(source=b'{"type": "site-update"}')),
        id=odd,
    )
    fired = await house.activity.handle(await house.lease(mine), event("bafy1"))
    assert [row["trigger_id"] for row in fired] == [first, last]


async def test_only_so_many_keys_are_kept(house: House) -> None:
    mine = account()
    await house.trigger(mine)
    lease = await house.lease(mine)
    names = [f"k{n:02}" for n in range(20)]
    await house.feeds.baseline(lease, list(reversed(names[:10])))
    for name in names[10:]:
        async with house.db.transaction() as tx:
            await house.feeds.remember(tx, lease, [name])
    await house.feeds.forget(lease)
    assert await house.feeds.seen(mine, names) == set(names[-2 * PACE.page_size * PACE.max_pages :])


async def test_events_combinations_and_deletions_do_not_wait_for_each_other_in_a_circle(house: House) -> None:
    combining = CombineStore(Outbox(house.db, outbox, lambda *_: True), lambda: uuid.uuid4().hex, now=house.now)

    async def combine(first: str, other: str) -> None:
        rows = [await house.triggers.get(each) for each in (first, other)]
        with contextlib.suppress(Conflict, NotFound):
            await combining.combine(Combination(first, other, rows[0]["updated_at"], rows[1]["updated_at"], False))

    for n in range(12):
        mine = account()
        ids = [await house.trigger(mine) for _ in range(6)]
        lease = await house.lease(mine)
        await asyncio.gather(
            *(house.activity.handle(lease, event(f"bafy{n}{i}")) for i in range(3)),
            combine(ids[0], ids[1]),
            combine(ids[1], ids[0]),
            combine(ids[5], ids[2]),
        )
        survivors = [row for row in await house.triggers.of_agent(f"agent-of-{mine}") if row["merged_into"] is None]
        assert len(survivors) == 4 and all(row["enabled"] for row in survivors)
        await asyncio.gather(
            house.activity.handle(lease, event(f"bafy{n}last")), house.triggers.drop_agent(f"agent-of-{mine}")
        )
        assert not await house.triggers.of_agent(f"agent-of-{mine}")


async def test_blocks_without_end_are_kept_as_far_as_readers_can_follow(house: House) -> None:
    mine = account()
    await house.trigger(mine)
    content: list[Any] = [block("deep")]
    for _ in range(450):
        content = [block(children=content)]
    (firing,) = await house.activity.handle(await house.lease(mine), event("bafy1", content=content))
    activity = msgspec.json.decode(firing["context"])["activity"]
    assert activity["comment"]["content"][0]["children"][0]["children"]
    assert wire.encode(activity)


async def test_an_event_that_always_fails_is_left_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, feed = account(), Feeds()
    await house.trigger(mine)
    feed.events[mine] = [comment(f"bafy{n}", at=house.now() + 60_000) for n in (3, 2, 1)]
    handle = house.activity.handle
    failed: list[str] = []

    async def fails(lease: Lease, it: Keyed) -> list[Row]:
        if it.key == "blob-bafy2":
            failed.append(it.key)
            raise RecursionError
        return await handle(lease, it)

    monkeypatch.setattr(house.activity, "handle", fails)
    tasks = await monitored(house, feed, 1)

    async def others_fired() -> bool:
        return await house.fired(mine) == ["blob-bafy1", "blob-bafy3"]

    try:
        await until(others_fired, what="the others' firings")
    finally:
        await ended(tasks)
    assert len(failed) == 3


async def monitored(house: House, feed: Feeds, monitors: int, pace: Pace = PACE) -> list[asyncio.Task[None]]:
    async def carried(_: Row) -> None:
        return None

    return [
        asyncio.create_task(
            ActivityMonitor(house.feeds, house.activity, feed, carried, pace, now=house.now).run(), name="monitor"
        )
        for _ in range(monitors)
    ]


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_monitors_share_the_accounts_and_a_bad_feed_is_its_own_affair(house: House) -> None:
    feed, accounts = Feeds(), [account() for _ in range(12)]
    for each in accounts:
        await house.trigger(each)
        feed.events[each] = [comment(f"bafy{n}", at=house.now() + 60_000) for n in reversed(range(5))]
    feed.hangs.add(accounts[0])
    feed.fails.add(accounts[1])
    tasks = await monitored(house, feed, 3)
    try:
        for each in accounts[2:]:
            await until(lambda it=each: feed.asked.get(it, 0) >= 4, what="several polls")
        feed.fails.clear()
        for each in accounts[1:]:
            wanted = [f"blob-bafy{n}" for n in range(5)]

            async def all_there(it: str = each, wanted: list[str] = wanted) -> bool:
                return await house.fired(it) == wanted

            await until(all_there, what="all firings")
        assert feed.asked[accounts[0]] == 1
    finally:
        await ended(tasks)
    stored = await house.watermark(accounts[0])
    assert stored is not None and (stored["lease"], stored["last_error"]) == (None, "interrupted")


async def test_monitors_that_end_at_any_moment_lose_and_double_nothing(house: House) -> None:
    feed, mine = Feeds(), account()
    await house.trigger(mine)
    # Nothing is lost as long as one poll can fetch what has gathered.
    pace = Pace(interval_ms=50, page_size=3, max_pages=10, lease_ms=10_000)
    names: list[str] = []
    for round_ in range(6):
        tasks = await monitored(house, feed, 2, pace)
        for n in range(3):
            names.append(f"bafy{round_}{n}")
            feed.events.setdefault(mine, []).insert(0, comment(names[-1], at=house.now() + 60_000))
        before = feed.asked.get(mine, 0)
        await until(lambda before=before: feed.asked.get(mine, 0) > before, what="a poll")
        await ended(tasks)
    tasks = await monitored(house, feed, 1, pace)

    async def all_there() -> bool:
        return len(await house.fired(mine)) >= len(names)

    try:
        await until(all_there, what="all firings")
    finally:
        await ended(tasks)
    assert sorted(await house.fired(mine)) == [f"blob-{name}" for name in names]
    kept = await house.db.fetch(sql(sa.select(seen_events.c.event_key)))
    assert {f"blob-{name}" for name in names[-PACE.page_size * PACE.max_pages :]} <= {row[0] for row in kept}
