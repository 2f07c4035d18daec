"""What others left behind: firings that were not carried out, deleted triggers that sessions is still to forget."""

from __future__ import annotations

from services.triggers.monitor.carriers import Carriers
from services.triggers.monitor.dispatch import Dispatch
from services.triggers.store.firings import FiringStore


class Leftovers:
    """Takes up what is due again."""

    def __init__(self, firings: FiringStore, dispatch: Dispatch, carriers: Carriers) -> None:
        self._firings, self._dispatch, self._carriers = firings, dispatch, carriers

    async def sweep(self) -> None:
        """Once."""
        for firing in await self._firings.take_left():
            self._carriers.send(firing)
        for trigger_id in await self._firings.take_deletions():
            await self._dispatch.forget(trigger_id)
