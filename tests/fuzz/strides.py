"""Envelopes in strides, each sent and judged by a process of a pool."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

import psutil

from libs.client import Key
from tests.fuzz.connection import Connection
from tests.fuzz.house import house
from tests.fuzz.in_process import Findings
from tests.fuzz.mutations import Input, Mutator, Seeds
from tests.fuzz.over_http import SUSPECTS, measure_again

STRIDE = 10_000


@dataclass
class Done:
    """What a stride found: `slow` are inputs that took long, with the seed of the key that signs for them."""

    count: int
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    replays: int = 0
    slow: list[tuple[float, Input, bytes]] = field(default_factory=list)

    def add(self, other: Done) -> None:
        """Add what another stride found."""
        self.count += other.count
        self.seen += other.seen
        self.faults += other.faults
        self.replays += other.replays
        self.slow = sorted([*self.slow, *other.slow], key=lambda one: -one[0])[:SUSPECTS]


async def _stride(urls: list[str], seed: int, part: int, parts: int, count: int) -> Done:
    async with house(urls, seed + part) as h:
        typed = itertools.islice(h.mutator.wrong_types(part, parts), count // 5)
        await h.fuzzer.run(itertools.islice(itertools.chain(typed, h.mutator.stream()), count))
        found = h.fuzzer.findings
        if (await h.client.session(h.session)).session.agent_id != h.agent:
            found.faults.append("the session is not what it was")
        key = h.client.signer.key.seed
        slow = [(seconds, given, key) for seconds, given in h.fuzzer.suspects]
        return Done(count, found.seen, found.faults, h.fuzzer.replays, slow)


def stride(urls: list[str], seed: int, part: int, parts: int, count: int) -> Done:
    """Send one stride, in this process."""
    return asyncio.run(_stride(urls, seed, part, parts, count))


def run(urls: list[str], seed: int, count: int, jobs: int) -> Done:
    """Send all, and say every now and then how far it is."""
    parts = -(-count // STRIDE)
    sizes = [min(STRIDE, count - part * STRIDE) for part in range(parts)]
    total, started, used = Done(0), time.monotonic(), _processor_seconds()
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(stride, urls, seed, part, parts, size) for part, size in enumerate(sizes)]
        for ended in as_completed(running):
            total.add(ended.result())
            seconds = time.monotonic() - started
            rate = total.count / seconds
            left = (count - total.count) / rate / 60
            print(f"{total.count} sent, {rate:.0f}/s, {left:.1f} min left, {len(total.faults)} faults", flush=True)
        used = _processor_seconds() - used
    print(f"{used / count * 1000:.2f} ms of processor an envelope, of all processes together", flush=True)
    return total


async def settle(urls: list[str], total: Done) -> None:
    """Measure again, with nothing else under way, what took long."""
    findings, connection = Findings(), Connection(urls[0])
    for _, given, key in total.slow:
        await measure_again(given, connection, Mutator(Key(key), Seeds({}), 0).sign, findings)
    connection.close()
    total.faults += findings.faults


def _processor_seconds() -> float:
    """What this process and all below it have used, those that ended too."""
    me = psutil.Process()
    seconds = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
