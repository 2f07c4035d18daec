"""Subscriptions on the bus, shared by everyone on this edge who needs the same subject."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from libs.events import Bus, Subscription
from services.edge.live.tasks import Tasks


@dataclass(slots=True)
class _Shared:
    count: int = 0
    subscription: Subscription | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Listeners:
    """Counted subscriptions; all messages go to one handler."""

    def __init__(self, bus: Bus, tasks: Tasks, on_message: Callable[[str, bytes], None]) -> None:
        self._bus, self._tasks, self._on_message = bus, tasks, on_message
        self._shared: dict[str, _Shared] = {}

    async def acquire(self, subject: str) -> None:
        """Listen on `subject`. When this returns everything published later arrives (unless the bus is away)."""
        shared = self._shared.setdefault(subject, _Shared())
        shared.count += 1
        try:
            async with shared.lock:
                if shared.subscription is None:
                    shared.subscription = await self._bus.subscribe(subject, self._on_message)
                    await self._bus.flush()
        except BaseException:
            self.release(subject)
            raise

    def release(self, subject: str) -> None:
        """Take back one acquire()."""
        shared = self._shared[subject]
        shared.count -= 1
        if shared.count == 0:
            del self._shared[subject]
            if shared.subscription is not None:
                self._tasks.spawn(shared.subscription.unsubscribe())
