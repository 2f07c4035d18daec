"""Ten thousand runs that wait for a signal: what they hold, what they cost, how soon one goes on.

They pause as a run does that has used up its time. As many as the time allows go the whole way over the public edge;
copies of their rows make up the number.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from libs.client import Subscription
from libs.protocol.ws import WsRunChange

from . import footprint, processor
from .live import summary
from .load import Job, run
from .site import Site
from .subject import InstantProvider, Subject

_CLIENTS = 32
_IN_A_SESSION = 10
_WARM_UP = 640
_WAITING = "SELECT count(*) FROM runs.runs WHERE status = 'waiting'"
_COPY_RUNS = """
INSERT INTO runs.runs
SELECT (jsonb_populate_record(r, jsonb_build_object('id', r.id || n, 'root_run_id', r.id || n))).*
FROM runs.runs r, generate_series(1, 1000) n WHERE r.status = 'waiting' LIMIT $1
"""
_COPY_TURNS = """
INSERT INTO sessions.session_turns
SELECT (jsonb_populate_record(t, jsonb_build_object('run_id', r.id))).*
FROM runs.runs r JOIN sessions.session_turns t ON r.id LIKE t.run_id || '_%'
WHERE r.status = 'waiting' AND NOT EXISTS (SELECT FROM sessions.session_turns o WHERE o.run_id = r.id)
"""
# Those that were announced since they parked have the longest to go: the whole period.
_PERIOD = "SELECT max(next_start_at) - $1 FROM sessions.session_turns WHERE state = 'parked'"
_SPREAD = "UPDATE sessions.session_turns SET next_start_at = $1 + (random() * $2)::bigint WHERE state = 'parked'"
_ANNOUNCED = "SELECT sum(starts) FROM sessions.session_turns WHERE state = 'parked'"
_SAMPLE = """
SELECT DISTINCT ON (r.session_id) r.id FROM runs.runs r JOIN sessions.session_turns t ON t.run_id = r.id
WHERE r.status = 'waiting' AND length(r.id) = (SELECT min(length(id)) FROM runs.runs) LIMIT $1
"""


async def parked(site: Site) -> dict[str, Any]:
    """Memory (MB of the services) and processor time (% of a core) beyond those of an idle stack; wake-up in ms.

    The sessions announce parked turns to the runs, each once in a period. As if they had parked one after the other in
    that time, their turns to be announced are spread over it: `announced_a_second` came in what was measured.
    """
    stack, amounts = site.stack, site.amounts
    await asyncio.sleep(amounts.settle_s)
    idle = await processor.shares(stack, amounts.idle_s)
    with InstantProvider() as provider:
        subject = Subject(stack.url)
        await subject.add_provider("instant", provider.url)
        subject.agents.append(await subject.add_agent("Parked", "instant"))
        # Pools, caches and heaps take their size with the first requests of any kind.
        await _park(site, subject, min(_WARM_UP, amounts.parked // 4), amounts.fill_s)
        await _wake(site, subject, 3)
        warm = await site.count(_WAITING)
        await asyncio.sleep(amounts.settle_s)
        before = footprint.memory(stack.processes())
        started = time.monotonic()
        await _park(site, subject, amounts.parked - warm, amounts.fill_s)
        real = await site.count(_WAITING)
        took = time.monotonic() - started
        async with site.rows.transaction():
            await site.rows.execute(_COPY_RUNS, max(0, amounts.parked - real))
            await site.rows.execute(_COPY_TURNS)
        now = time.time_ns() // 1_000_000
        period_ms = await site.count(_PERIOD, now)
        await site.rows.execute(_SPREAD, now, float(period_ms))
        await site.rows.execute("VACUUM ANALYZE sessions.session_turns, runs.runs")
        await asyncio.sleep(amounts.settle_s)
        told = await site.count(_ANNOUNCED)
        shares = await processor.shares(stack, amounts.idle_s)
        told = await site.count(_ANNOUNCED) - told
        after = footprint.memory(stack.processes())
        count = await site.count(_WAITING)
        wakes = await _wake(site, subject, amounts.wakes)
        await subject.client.close()
    return {
        "parked": count,
        "by_the_edge": real,
        "parked_a_second": (real - warm) / took,
        "added_mb": after["services"]["pss"] - before["services"]["pss"],
        "added_mb_by_process": {
            name: sizes["pss"] - before["by_process"][name]["pss"] for name, sizes in after["by_process"].items()
        },
        "idle_percent": idle,
        "percent": shares,
        "announced_every_s": period_ms / 1000,
        "announced_a_second": told / amounts.idle_s,
        "wake": summary(wakes),
    }


async def _park(site: Site, subject: Subject, count: int, limit_s: float) -> None:
    each = max(1, count // _CLIENTS)
    sessions = iter(await subject.sessions((each // _IN_A_SESSION + 1) * _CLIENTS))
    bodies: list[list[bytes]] = []
    for _ in range(_CLIENTS):
        mine = [next(sessions) for _ in range(each // _IN_A_SESSION + 1)]
        bodies.append([subject.message(mine[n // _IN_A_SESSION], f"{n}") for n in range(each)])
    job = Job(site.stack.url, bodies, limit_s, repeat=False, warm_up_s=0.0)
    load = await asyncio.to_thread(run, job)
    if load.error:
        raise RuntimeError(f"not parked: {load.error}")


async def _wake(site: Site, subject: Subject, count: int) -> list[float]:
    """ms from SignalRun being sent to the frame that tells that the run is running, one after the other."""
    delays: list[float] = []
    for row in await site.rows.fetch(_SAMPLE, count):
        run_id = row["id"]
        async with subject.client.subscribe(f"runs/{run_id}") as events:
            await _seen(events, "waiting")
            sent = time.monotonic()
            signal = asyncio.create_task(subject.client.call("SignalRun", runId=run_id, signal="go on"))
            await _seen(events, "running")
            delays.append((time.monotonic() - sent) * 1000)
            await signal
            await _seen(events, "succeeded")
    return delays


async def _seen(events: Subscription, status: str) -> None:
    async with asyncio.timeout(30):
        async for event in events:
            if isinstance(event, WsRunChange) and event.value.status == status:
                return
    raise RuntimeError(f"the subscription ended before the run was {status}")
