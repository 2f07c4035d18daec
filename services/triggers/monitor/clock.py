"""Schedules: what is due is fired, by one monitor or another."""

from __future__ import annotations

from libs import telemetry
from services.triggers.monitor.carriers import Carriers
from services.triggers.store.firings import FiringStore

log = telemetry.get_logger("triggers")

_ROWS = 200


class Clock:
    """Fires schedules. The time is the store's."""

    def __init__(self, firings: FiringStore, carriers: Carriers) -> None:
        self._firings, self._carriers = firings, carriers

    async def look(self) -> int:
        """Fire what is due, oldest trigger first; returns how many fired."""
        fired = 0
        while ids := await self._firings.due(_ROWS):
            before = fired
            for trigger_id in ids:
                firing = await self._firings.admit_due(trigger_id)
                if firing is not None:
                    fired += 1
                    self._carriers.send(firing)
            if len(ids) < _ROWS or fired == before:
                # The rest is another monitor's.
                break
        return fired
