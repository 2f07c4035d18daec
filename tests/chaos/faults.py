"""Which part is hurt when, and how: decided by the seed, before anything starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from libs.stack import ManagedProcess, Stack

_EDGES = ("edge", "edge-1")
# Repeated ones are hit more often.
_VICTIMS = (
    *("worker", "worker-1", "worker", "worker-1", *_EDGES, "runs", "sessions", "secrets"),
    *("postgres", "postgres", "nats", "nats", "valkey"),
)
_WORKERS = ("worker", "worker-1")
_AT_ONCE = 2
_SPARED_AT_END = 6
"""An edge that is killed keeps the requests it was handling for up to half a minute: the last faults spare them."""
_BACK_S = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """At `at` seconds `victim` is killed (-9), restarted (SIGTERM) or frozen; `away` is how long it is gone."""

    at: float
    victim: str
    how: str
    away: float


def schedule(seed: int, kills: int, *, pause: float = 1.4) -> list[Fault]:
    """`kills` faults, about `pause` seconds apart."""
    chance = random.Random(f"{seed}:faults")
    faults: list[Fault] = []
    at = 1.0
    for n in range(kills):
        at += chance.uniform(0.3, 1.7) * pause
        victims = [v for v in _VICTIMS if kills - n > _SPARED_AT_END or v not in _EDGES]
        victim = chance.choice(victims)
        how = chance.choices(("kill", "restart", "freeze"), (7, 2, 2 if victim in _WORKERS else 0))[0]
        # Longer than the lease: what is frozen wakes up as somebody whose work has been given away.
        away = chance.uniform(2.5, 4.0) if how == "freeze" else chance.choice((0.0, 0.0, chance.uniform(0.1, 1.5)))
        faults.append(Fault(round(at, 2), victim, how, round(away, 2)))
    return faults


class Hurting:
    """Carries out a schedule on a stack; `say` is told of each fault."""

    def __init__(self, stack: Stack, say: Callable[[str], None]) -> None:
        self._say = say
        self._parts = {process.name: process for process in stack.processes()}
        self._locks = {name: asyncio.Lock() for name in self._parts}
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def run(self, faults: list[Fault]) -> None:
        """Until everything is up again after the last fault."""
        started = time.monotonic()
        async with asyncio.TaskGroup() as hurt:
            for fault in faults:
                await asyncio.sleep(max(0.0, started + fault.at - time.monotonic()))
                await self._places.acquire()
                self._say(f"{time.monotonic() - started:6.1f} s  {fault.how:<7} {fault.victim:<9} {fault.away:.1f} s")
                hurt.create_task(self._one(fault))

    async def _one(self, fault: Fault) -> None:
        try:
            async with self._locks[fault.victim]:
                process = self._parts[fault.victim]
                if fault.how == "freeze":
                    await _frozen(process, fault.away)
                    return
                # Not `crash`: the supervisor would come back later with each death of the same process.
                await asyncio.to_thread(process.kill if fault.how == "kill" else process.stop)
                await asyncio.sleep(fault.away)
                await asyncio.to_thread(process.start)
                await asyncio.to_thread(process.wait_ready, _BACK_S)
        finally:
            self._places.release()


async def _frozen(process: ManagedProcess, seconds: float) -> None:
    pid = process.pid
    if pid is None:
        return
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
