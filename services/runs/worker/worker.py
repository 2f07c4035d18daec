"""The worker: claims runs, holds their leases, executes them, gives them back on shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from seed.events.v1 import events_pb2

from libs import events, telemetry
from libs.errors import SeedError
from libs.events import Bus
from libs.store import Row
from services.runs.store.family import Park
from services.runs.store.queue import Queue
from services.runs.store.rows import outcome_of
from services.runs.store.workers import Workers
from services.runs.worker.answers import Answers
from services.runs.worker.claim import Held, Parts, Verdict
from services.runs.worker.presence import Presence
from services.runs.worker.turn import Turn

log = telemetry.get_logger("worker")

GRACE_S = 10.0
"""How long running turns may go on after SIGTERM before they are handed back."""


PARKED = Verdict()
"""The run waits; nothing is left to settle."""

CLAIM_S = 2.0
"""How long a claim under way may take after SIGTERM."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a worker claims: `slots` runs at once, polls between the two times, leases of `lease_s`."""

    slots: int
    poll_min_s: float
    poll_max_s: float
    lease_s: float


def worker_id() -> str:
    """An id that no other worker has, telling the host and process."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


class Worker:
    """Executes runs until it is stopped. `wake()` looks at the queue now."""

    def __init__(
        self,
        parts: Parts,
        queue: Queue,
        answers: Answers,
        bus: Bus,
        pace: Pace,
        now: Callable[[], int],
        workers: Workers,
    ) -> None:
        self._parts, self._queue, self._bus, self._pace, self._now = parts, queue, bus, pace, now
        self._answers = answers
        self.id = worker_id()
        self._presence = Presence(workers, self.id, pace.slots, now)
        self._held: dict[str, Held] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False

    def wake(self) -> None:
        """Look at the queue now."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then let turns end within the grace period and hand the others back."""
        await self._bus.subscribe(events.WORK, lambda _s, _b: self.wake())
        await self._bus.subscribe(events.CANCEL, self._on_cancel)
        self._bus.on_restored(self._on_restored)
        loops: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._claims(), name="claims"),
            asyncio.create_task(self._leases(), name="leases"),
            asyncio.create_task(self._beats(), name="beats"),
            asyncio.create_task(self._expiries(), name="expiries"),
            asyncio.create_task(self._results(), name="results"),
        ]
        stopping: asyncio.Task[Any] = asyncio.create_task(stop.wait(), name="stop")
        done, _ = await asyncio.wait([*loops, stopping], return_when=asyncio.FIRST_COMPLETED)
        self._stopping = True
        self.wake()
        # Not canceled at once: runs claimed in this moment would wait for their lease to run out.
        await asyncio.wait([loops[0]], timeout=CLAIM_S)
        loops[0].cancel()
        if self._held and stopping in done:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), GRACE_S)
        for held in list(self._held.values()):
            held.halt("drain")
        await self._idle.wait()
        for task in (*loops, stopping):
            task.cancel()
        results = await asyncio.gather(*loops, stopping, return_exceptions=True)
        with _outliving("worker not signed off"):
            await self._presence.leave()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _on_restored(self) -> None:
        self.wake()

    def _on_cancel(self, _: str, body: bytes) -> None:
        for run_id in events_pb2.CancelHint.FromString(body).run_ids:
            held = self._held.get(run_id)
            if held is not None:
                held.halt("canceled")
        # A canceled child is a result too.
        self._answers.wake()

    async def _claims(self) -> None:
        pause = self._pace.poll_min_s
        polled = True
        while not self._stopping:
            self._wake.clear()
            free = 0 if self._presence.draining else self._pace.slots - len(self._held)
            rows: list[Row] = []
            due: int | None = None
            with _outliving("queue not claimed from"):
                rows = await self._queue.claim(self.id, free) if free > 0 else []
                due = await self._queue.next_due() if polled and not rows and free > 0 else None
            for row in rows:
                self._begin(row)
            if rows and len(rows) == free:
                pause = self._pace.poll_min_s
                continue
            pause = self._pace.poll_min_s if rows else min(pause * 1.5, self._pace.poll_max_s)
            wait = pause if due is None else max(0.001, min(pause, (due - self._now()) / 1000))
            polled = False
            if not self._stopping:
                try:
                    await asyncio.wait_for(self._wake.wait(), wait)
                except TimeoutError:
                    polled = True

    def _begin(self, row: Row) -> None:
        held = Held(row)
        earlier = self._held.get(held.run_id)
        if earlier is not None:
            earlier.halt("lost")
        self._held[held.run_id] = held
        self._idle.clear()
        held.task = asyncio.create_task(self._execute(held), name=f"run-{held.run_id}")

    async def _execute(self, held: Held) -> None:
        telemetry.new_trace()
        more = True
        try:
            turn = Turn(self._parts, held)
            with telemetry.span("turn", run=held.run_id, attempt=held.attempt):
                verdict = await turn.run()
            # What is decided is written down: from here on nothing may interrupt.
            held.stop = held.stop or "settling"
            if verdict is not None and verdict.park is not None:
                verdict = await self._park(turn, held, verdict.park)
                if verdict is PARKED:
                    return
            if verdict is None:
                log.warning("claim lost", run=held.run_id, attempt=held.attempt)
            elif verdict.ending is None:
                failures = held.row["failures"] + (1 if verdict.failed else 0)
                row = await self._settle(
                    lambda: self._queue.give_back(
                        held.run_id, held.attempt, not_before=verdict.again_at, failures=failures
                    )
                )
                if row is not None and self._stopping:
                    self._bus.publish(events.WORK, b"")
            else:
                ending = verdict.ending
                parent = held.row["parent_run_id"]
                row = await self._settle(
                    lambda: self._queue.complete(held.run_id, held.attempt, ending, parent, seen=held.row)
                )
                if parent:
                    self._answers.wake()
                self._tell(row)
                more = row is None or row["account_waits"]
        except Exception as e:  # the lease runs out and another claim repairs it
            log.error("run not settled", run=held.run_id, error=type(e).__name__, exc_info=e)
        finally:
            full = len(self._held) >= self._pace.slots
            if self._held.get(held.run_id) is held:
                del self._held[held.run_id]
            if not self._held:
                self._idle.set()
            # The next run of the session or the account, or one that found no free slot, may be due now.
            if more or full:
                self.wake()

    async def _settle(self, write: Callable[[], Awaitable[Row | None]]) -> Row | None:
        """Write an ending, patiently: the turn itself is over, only its row is open."""
        pause = 0.1
        while True:
            try:
                return await write()
            except (SeedError, OSError) as e:
                if pause > 30:
                    raise
                log.warning("run row waits for the database", error=type(e).__name__)
                await asyncio.sleep(pause)
                pause *= 2

    async def _park(self, turn: Turn, held: Held, park: Park) -> Verdict | None:
        """Let a run wait for its children; a cancel that came first ends it instead."""
        row = await self._settle(lambda: self._parts.family.park(held.run_id, held.attempt, park))
        if row is None:
            return None
        if row["status"] == "running":
            return await turn.end_canceled()
        self._tell(row)
        self._bus.publish(events.WORK, b"")
        self._answers.wake()
        return PARKED

    def _tell(self, row: Row | None) -> None:
        if row is not None and row["notify"]:
            settled = events_pb2.TurnSettled(outcome=outcome_of(row))
            self._bus.publish(row["notify"], settled.SerializeToString())

    async def _leases(self) -> None:
        while True:
            await asyncio.sleep(self._pace.lease_s / 3)
            mine = {h.run_id: h for h in self._held.values()}
            if not mine:
                continue
            with _outliving("leases not renewed"):
                kept = await self._queue.renew(self.id, list(mine))
                for run_id, held in mine.items():
                    attempt, cancel = kept.get(run_id, (0, False))
                    if attempt != held.attempt:
                        held.halt("lost")
                    elif cancel:
                        held.halt("canceled")

    async def _results(self) -> None:
        while True:
            await self._answers.wait()
            with _outliving("results not delivered"):
                if await self._answers.deliver():
                    self._bus.publish(events.WORK, b"")
                    self.wake()

    async def _beats(self) -> None:
        while True:
            with _outliving("heartbeat not written"):
                drained = self._presence.draining
                await self._presence.beat(len(self._held), stopping=self._stopping)
                if drained and not self._presence.draining:
                    self.wake()
            await asyncio.sleep(self._pace.lease_s / 3)

    async def _expiries(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            with _outliving("expired leases not looked at"):
                if await self._queue.expire():
                    self._bus.publish(events.WORK, b"")
                    self.wake()


@contextlib.contextmanager
def _outliving(what: str) -> Iterator[None]:
    """Let the loop around this block outlive a failure inside it."""
    try:
        yield
    except (SeedError, OSError) as e:
        log.warning(what, error=type(e).__name__)
    except Exception as e:
        log.error(what, error=type(e).__name__, exc_info=e)
