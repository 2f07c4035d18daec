"""What a worker holds and works with, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from libs.store import Row
from services.runs.providers.contract import ModelConfig
from services.runs.providers.gateway import ModelGateway
from services.runs.store.endings import Ending
from services.runs.store.family import Family, Park
from services.runs.store.queue import Queue
from services.runs.verbs.dispatch import Verbs
from services.runs.worker.log import SessionLog
from services.runs.worker.models import ModelResolver
from services.runs.worker.partials import PartialStream
from services.runs.worker.tools import Limits


@dataclass(slots=True)
class Held:
    """A run this worker holds. `stop` says why its task is being canceled: canceled, lost or drain."""

    row: Row
    stop: str = ""
    task: asyncio.Task[None] | None = None
    started: bool = False

    @property
    def run_id(self) -> str:
        """Run id."""
        return self.row["id"]

    @property
    def attempt(self) -> int:
        """Attempt of the claim."""
        return self.row["attempt"]

    def halt(self, why: str) -> None:
        """End the run's task; the first reason stays."""
        if not self.stop and self.task is not None:
            self.stop = why
            # A task canceled before its first step would never run what settles it: it looks at `stop` itself.
            if self.started:
                self.task.cancel()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a claim: an ending for good, a park, or another try not before `again_at` (Unix ms)."""

    ending: Ending | None = None
    park: Park | None = None
    again_at: int = 0
    failed: bool = False


@dataclass(slots=True)
class Parts:
    """What a turn works with."""

    queue: Queue
    family: Family
    limits: Limits
    models: ModelResolver
    gateway: ModelGateway
    now: Callable[[], int]
    log_of: Callable[[str, int], SessionLog]
    stream_of: Callable[[Row], PartialStream]
    backoff_ms: Callable[[int], int]
    verbs: Verbs
    title: Callable[[str, ModelConfig, SessionLog], None]
    """Has an untitled session named, given its id: returns at once."""
