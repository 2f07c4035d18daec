"""Background work that must not end the process when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from libs import telemetry

log = telemetry.get_logger("live")


class Tasks:
    """Spawns into one task group; run() holds it open until it is cancelled."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Hold the group open; never returns."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._ready.set()
            await asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        """Wait until spawn() may be called."""
        await self._ready.wait()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` beside everything else; what it raises is logged."""
        if self._group is None:
            work.close()
            raise RuntimeError("tasks are not running")
        try:
            self._group.create_task(_guarded(work))
        except RuntimeError:
            # The group is ending: so is the process.
            work.close()


async def _guarded(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except Exception as e:  # one failure must not end the others
        log.error("background work failed", error=type(e).__name__, exc_info=e)
