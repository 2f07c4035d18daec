"""Requests a second, of an account and from an address, over all edges.

Each edge counts in buckets of its own and asks nobody before it answers. A few times a second it tells the shared
buckets what was spent since, in one command for everybody, and learns what the other edges left. So the rates hold on
the average of any second; what two edges let through too much in between is taken from what comes next. While the
store is away each edge limits by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from libs import telemetry
from libs.errors import TooMany
from services.edge.domain.replay import StoreAway

log = telemetry.get_logger("rates")

SYNC_S = 0.05
"""How long an edge counts by itself before it tells the others."""
_SOON = 64
"""So many requests of one account or address are told at once."""
_AWAY_S = 1.0


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_second` on the average, up to `burst` at once. Either is 0: no limit."""

    per_second: float
    burst: int

    @property
    def limits(self) -> bool:
        """Whether anything is limited."""
        return self.per_second > 0 and self.burst > 0


@dataclass(frozen=True, slots=True)
class Spent:
    """What one edge spent of one bucket since it last told."""

    key: str
    rate: Rate
    count: int


class SharedBuckets(Protocol):
    """The buckets that all edges share."""

    async def spend(self, spent: Sequence[Spent]) -> list[float]:
        """Take from each bucket; returns what is in them then, below zero for a debt. May raise StoreAway."""
        ...


class _Bucket:
    __slots__ = ("at", "left", "rate", "spent")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate, self.left, self.at, self.spent = rate, float(rate.burst), now, 0

    def refill(self, now: float) -> None:
        self.left = min(self.rate.burst, self.left + (now - self.at) * self.rate.per_second)
        self.at = now


class Rates:
    """Counts requests and refuses those beyond the rates. `share()` must run beside it."""

    def __init__(
        self, store: SharedBuckets, *, account: Rate, address: Rate, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._account, self._address, self._now = store, account, address, now
        self._buckets: dict[str, _Bucket] = {}
        self._wake, self._soon = asyncio.Event(), asyncio.Event()

    def account(self, account: str) -> None:
        """Count a request of an account. Raises TooMany."""
        if self._account.limits:
            self._count("account:" + account, self._account)

    def address(self, address: str) -> None:
        """Count a request from an address. Raises TooMany."""
        if self._address.limits:
            self._count("address:" + address, self._address)

    def _count(self, key: str, rate: Rate) -> None:
        now = self._now()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(rate, now)
            self._wake.set()
        bucket.refill(now)
        if bucket.left < 1:
            raise TooMany("Too many requests", retry_after_s=(1 - bucket.left) / rate.per_second)
        bucket.left -= 1
        bucket.spent += 1
        if bucket.spent >= _SOON:
            self._soon.set()

    async def share(self) -> None:
        """Tell the shared buckets what is spent here, and learn what is spent elsewhere; never returns."""
        task = asyncio.current_task()
        assert task is not None
        # Clients of stores swallow a cancellation that meets their own timeout; it is counted all the same.
        while not task.cancelling():
            await self._wake.wait()
            try:
                async with asyncio.timeout(SYNC_S):
                    await self._soon.wait()
            except TimeoutError:
                pass
            self._soon.clear()
            try:
                await self._tell()
            except StoreAway:
                log.warning("rates are not shared")
                await asyncio.sleep(_AWAY_S)
            self._forget()
        raise asyncio.CancelledError

    async def _tell(self) -> None:
        spent = [Spent(key, b.rate, b.spent) for key, b in self._buckets.items() if b.spent]
        if not spent:
            return
        for one in spent:
            self._buckets[one.key].spent = 0
        left = await self._store.spend(spent)
        now = self._now()
        for one, shared in zip(spent, left, strict=True):
            bucket = self._buckets[one.key]
            # What was spent here while the answer was on its way is not in it yet.
            bucket.left, bucket.at = shared - bucket.spent, now

    def _forget(self) -> None:
        """Drop buckets that are full again: a new one would be no different."""
        now = self._now()
        for key, bucket in list(self._buckets.items()):
            bucket.refill(now)
            if not bucket.spent and bucket.left >= bucket.rate.burst:
                del self._buckets[key]
        if not self._buckets:
            self._wake.clear()
