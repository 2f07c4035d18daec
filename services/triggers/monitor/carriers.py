"""Firings carried out beside what found them: a service that is away delays no other look."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from libs import telemetry
from libs.errors import SeedError
from libs.store import Row

log = telemetry.get_logger("triggers")

CarryOut = Callable[[Row], Awaitable[None]]

_AT_ONCE = 16
_MOST = 1_000


class Carriers:
    """Carries out a few firings at once. What is left when it closes, or is too much, is the sweep's."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, firing: Row) -> None:
        """Carry a firing out soon."""
        if len(self._tasks) < _MOST:
            task = asyncio.create_task(self._carry(firing), name="firing")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, firing: Row) -> None:
        async with self._free:
            try:
                await self._carry_out(firing)
            except SeedError as e:
                log.warning("firing waits", firing=firing["id"], error=e.message)
            except Exception as e:  # the sweep tries again
                log.error("firing failed", firing=firing["id"], error=type(e).__name__, exc_info=e)

    async def close(self, within_s: float = 2.0) -> None:
        """Let what is under way end, for so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
