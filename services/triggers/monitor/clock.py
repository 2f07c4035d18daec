"""Schedules: what is due is fired, by one monitor or another."""

from __future__ import annotations

from libs import telemetry
from services.triggers.monitor.dispatch import Dispatch
from services.triggers.store.firings import FiringStore

log = telemetry.get_logger("triggers")

_ROWS = 200


class Clock:
    """Fires schedules. The time is the store's."""

    def __init__(self, firings: FiringStore, dispatch: Dispatch) -> None:
        self._firings, self._dispatch = firings, dispatch

    async def look(self) -> int:
        """Fire what is due, oldest trigger first; returns how many fired."""
        fired = 0
        while ids := await self._firings.due(_ROWS):
            before = fired
            for trigger_id in ids:
                firing = await self._firings.admit_due(trigger_id)
                if firing is not None:
                    fired += 1
                    await self._dispatch.carry_out(firing)
            if len(ids) < _ROWS or fired == before:
                # The rest is another monitor's.
                break
        return fired
