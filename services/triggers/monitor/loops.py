"""Doing something again and again, whatever it raises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from libs import telemetry
from libs.errors import SeedError

log = telemetry.get_logger("triggers")


async def every(seconds: float, name: str, act: Callable[[], Awaitable[object]]) -> None:
    """Do `act` now and `seconds` after each end of it, until canceled. Failures are logged."""
    while True:
        try:
            await act()
        except SeedError as e:
            log.warning("waits", task=name, error=e.message)
        except Exception as e:  # one failure must not end the watch
            log.error("failed", task=name, error=type(e).__name__, exc_info=e)
        await asyncio.sleep(seconds)
