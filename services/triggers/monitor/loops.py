"""Doing something again and again, whatever it raises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from libs import telemetry
from libs.errors import SeedError

log = telemetry.get_logger("triggers")


async def every(seconds: float, name: str, act: Callable[[], Awaitable[object]]) -> None:
    """Do `act` now and `seconds` after each end of it, until canceled.

    A failure is logged; while it lasts, not each time.
    """
    failing = ""
    while True:
        failure = ""
        try:
            await act()
        except SeedError as e:
            failure = e.message
            if failure != failing:
                log.warning("waits", task=name, error=failure)
        except Exception as e:  # one failure must not end the watch
            failure = type(e).__name__
            if failure != failing:
                log.error("failed", task=name, error=failure, exc_info=e)
        if failing and not failure:
            log.info("goes on", task=name)
        failing = failure
        await asyncio.sleep(seconds)
