"""A worker's row: that it lives, what it holds, whether it has been asked to claim no more."""

from __future__ import annotations

import socket
from collections.abc import Callable

from services.runs.store.workers import Workers


class Presence:
    """Heartbeats of one worker with so many slots. `now` gives Unix milliseconds."""

    def __init__(self, workers: Workers, worker: str, slots: int, now: Callable[[], int]) -> None:
        self._workers, self._worker, self._slots = workers, worker, slots
        self._host, self._started_at = socket.gethostname(), now()
        self.draining = False

    async def beat(self, held: int, *, stopping: bool) -> None:
        """Say what the worker holds, learn whether it is to drain, and drop the rows of those that are gone."""
        self.draining = await self._workers.beat(
            self._worker,
            host=self._host,
            started_at=self._started_at,
            slots=self._slots,
            held=held,
            draining=self.draining,
            stopping=stopping,
        )
        await self._workers.forget()

    async def leave(self) -> None:
        """The worker has ended."""
        await self._workers.leave(self._worker)
