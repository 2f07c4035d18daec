"""The activity feed: polled for each account with a trigger that is not of the clock (triggers.md, section 4).

Any number of monitors share the accounts: each poll leases one, and a monitor takes only as many as it can poll now.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from libs import telemetry
from libs.errors import SeedError
from libs.hypermedia.feed import FeedPage
from libs.hypermedia.server import AskFailed
from libs.store import Row
from services.triggers import metrics
from services.triggers.domain.activity.shapes import Activity
from services.triggers.domain.activity.watermark import Keyed, first_poll, keyed, later_poll
from services.triggers.store.activity import ActivityStore
from services.triggers.store.feeds import FeedStore, Lease, LeaseLost

log = telemetry.get_logger("triggers")

POLL_SECONDS: Final = 60.0
_POLLS: Final = 16
_CARRIERS: Final = 16
_TRIES: Final = 3
_LONGEST_PAUSE_S: Final = 0.5

CarryOut = Callable[[Row], Awaitable[None]]
"""Does what a new firing is for; a firing that it leaves is somebody else's."""


class Feed(Protocol):
    """Where events come from."""

    async def page(self, account: str, size: int, token: str = "") -> FeedPage:
        """A page of events as the account sees them. Raises AskFailed."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a feed is polled, how much of it, and after how long it is taken from a monitor that went silent."""

    interval_ms: int
    page_size: int
    max_pages: int
    lease_ms: int


class ActivityMonitor:
    """Polls feeds until it is canceled. `now` gives Unix milliseconds."""

    def __init__(
        self,
        feeds: FeedStore,
        activity: ActivityStore,
        feed: Feed,
        carry_out: CarryOut,
        pace: Pace,
        *,
        now: Callable[[], int],
    ) -> None:
        self._feeds, self._activity, self._feed, self._carry_out = feeds, activity, feed, carry_out
        self._pace, self._now = pace, now
        self._tasks: set[asyncio.Task[None]] = set()
        self._polling = 0
        self._carriers = asyncio.Semaphore(_CARRIERS)
        self._enrolled = 0.0
        self._stumbles: dict[tuple[str, str], int] = {}

    async def run(self) -> None:
        """Poll what is due, again and again. On cancellation polls end where they are, and their feeds are free."""
        interval_s = self._pace.interval_ms / 1000
        try:
            while True:
                try:
                    await self._look(interval_s)
                except SeedError as e:
                    log.warning("activity waits", error=e.message)
                except Exception as e:  # one failure must not end the watch
                    log.error("activity failed", error=type(e).__name__, exc_info=e)
                await asyncio.sleep(min(_LONGEST_PAUSE_S, interval_s))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(self, interval_s: float) -> None:
        if time.monotonic() - self._enrolled >= interval_s:
            self._enrolled = time.monotonic()
            await self._feeds.enroll()
            feeds, troubled = await self._feeds.troubled()
            metrics.FEEDS.set(feeds)
            metrics.FEEDS_TROUBLED.set(troubled)
        if self._polling < _POLLS:
            for lease in await self._feeds.lease(_POLLS - self._polling, self._pace.lease_ms):
                self._polling += 1
                self._start(self._poll(lease))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _poll(self, lease: Lease) -> None:
        began, error = time.monotonic(), None
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._read(lease)
        except LeaseLost:
            return
        except asyncio.CancelledError:
            error = "interrupted"
            raise
        except AskFailed as e:
            error = str(e)
        except TimeoutError:
            error = "the poll took too long"
        except SeedError as e:
            error = e.message
        except Exception as e:  # the next poll must come whatever this one met
            log.error("poll failed", error=type(e).__name__, exc_info=e)
            error = "internal error"
        finally:
            self._polling -= 1
            await self._release(lease, error)
        metrics.POLLS.labels("failed" if error else "succeeded").inc()
        metrics.POLL_SECONDS.observe(time.monotonic() - began)

    async def _release(self, lease: Lease, error: str | None) -> None:
        try:
            await self._feeds.release(lease, self._now() + self._pace.interval_ms, error)
        except SeedError as e:
            # The lease runs out by itself.
            log.warning("feed not released", error=e.message)

    async def _read(self, lease: Lease) -> None:
        unseen = await self._fetch(lease)
        if lease.begun:
            plan = later_poll(unseen)
        else:
            plan = first_poll(unseen, await self._feeds.since(lease.account))
            await self._feeds.baseline(lease, plan.baseline)
        renewed = time.monotonic()
        for event in plan.due:
            if time.monotonic() - renewed >= self._pace.lease_ms / 3000:
                renewed = time.monotonic()
                await self._feeds.renew(lease, self._pace.lease_ms)
            firings = await self._handle(lease, event)
            metrics.EVENTS.inc()
            metrics.ACTIVITY_FIRINGS.inc(len(firings))
            for firing in firings:
                self._start(self._carry(firing))
        if not lease.begun:
            await self._feeds.begun(lease)
        if plan.baseline or plan.due:
            await self._feeds.forget(lease)

    async def _handle(self, lease: Lease, event: Keyed) -> list[Row]:
        try:
            firings = await self._activity.handle(lease, event)
        except (SeedError, LeaseLost):
            raise
        except Exception as e:  # whatever it is, one event must not hold up all that come after it for good
            stumbled = (lease.account, event.key)
            self._stumbles[stumbled] = self._stumbles.get(stumbled, 0) + 1
            if self._stumbles[stumbled] < _TRIES:
                raise
            log.error("event left out", account=lease.account, error=type(e).__name__, exc_info=e)
            await self._feeds.baseline(lease, [event.key])
            firings = []
        self._stumbles.pop((lease.account, event.key), None)
        return firings

    async def _fetch(self, lease: Lease) -> list[Keyed]:
        """What the feed holds and was not handled before, newest first."""
        unseen: dict[str, Keyed] = {}
        token = ""
        for _ in range(self._pace.max_pages):
            await self._feeds.renew(lease, self._pace.lease_ms)
            page = await self._feed.page(lease.account, self._pace.page_size, token)
            events = keyed(map(Activity, page.events))
            token = page.next_token
            seen = await self._feeds.seen(lease.account, [event.key for event in events])
            # Events may be large, and most of them are known: only the others are kept in memory.
            for event in events:
                if event.key not in seen:
                    unseen.setdefault(event.key, event)
            if not token or (seen and lease.begun):
                break
        return list(unseen.values())

    async def _carry(self, firing: Row) -> None:
        async with self._carriers:
            try:
                await self._carry_out(firing)
            except SeedError as e:
                # The sweep does it.
                log.warning("firing waits", firing=firing["id"], error=e.message)
            except Exception as e:  # likewise
                log.error("firing failed", firing=firing["id"], error=type(e).__name__, exc_info=e)
