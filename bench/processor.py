"""Processor time by process, from /proc, children included."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import psutil

from libs.stack import Stack

STORES = ("postgres", "nats", "valkey")


def seconds(stack: Stack) -> dict[str, float]:
    """Processor seconds that each process of the stack has used so far, by name, those of ended children included."""
    used: dict[str, float] = {}
    for process in stack.processes():
        if process.pid is None:
            continue
        family = [psutil.Process(process.pid)]
        family += family[0].children(recursive=True)
        used[process.name] = sum(_of(member) for member in family)
    return used


def between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was used from one reading to the other."""
    return {name: used - before[name] for name, used in after.items() if name in before}


async def shares(stack: Stack, during_s: float) -> dict[str, float]:
    """Percent of a core that each process uses from now on, for that long."""
    loop = asyncio.get_running_loop()
    before, started = seconds(stack), loop.time()
    await asyncio.sleep(during_s)
    took = loop.time() - started
    return {name: used / took * 100 for name, used in between(before, seconds(stack)).items()}


def of_workers(figures: Mapping[str, float]) -> float:
    """The sum over all worker processes."""
    return sum(figure for name, figure in figures.items() if name.split("-")[0] == "worker")


def _of(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return times.user + times.system + times.children_user + times.children_system
    return 0.0
