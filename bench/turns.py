"""Runs that come and go: how many a second, what one costs, how many at once, and who waits for whom."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

from libs.stack.scripted import ScriptedProvider

from . import processor
from .live import summary
from .load import Job, in_background, run
from .site import Site
from .subject import InstantProvider, Subject

CLIENTS = 32
AT_ONCE = 64
WAIT_S = 1.0
_MOST_A_SECOND = 400.0
_SIGNED_AHEAD = 100
_BURSTS = 3
_PAUSE_S = 0.05
_BACKLOG_TURNS = 3
"""Messages that a client of the waiting account has signed: more than it gets to send."""

FINISHED = "SELECT count(*) FROM runs.runs WHERE finished_at IS NOT NULL"
_TOOK = "SELECT finished_at - started_at AS took FROM runs.runs WHERE account = $1 AND created_at >= $2"
_STARTED = "SELECT started_at - created_at AS took FROM runs.runs WHERE account = $1 AND created_at >= $2"
_OF_ACCOUNT = "SELECT count(*) FROM runs.runs WHERE account = $1 AND status = $2"


async def creations(site: Site) -> dict[str, Any]:
    """Messages that queue a run each, while no worker is there: MessageSession to the row of its run."""
    with InstantProvider() as provider:
        subject = await _filled(site, provider, 1)
        sessions = await subject.sessions(CLIENTS)
        # What comes behind a live turn is answered at once.
        first = [asyncio.create_task(subject.client.message(session, "first")) for session in sessions]
        account = subject.client.account

        async def begun() -> bool:
            return await site.count(_OF_ACCOUNT, account, "queued") == CLIENTS

        await site.until(begun, "a queued run in each session")
        bodies = [[subject.message(session, f"{n}") for n in range(_SIGNED_AHEAD)] for session in sessions]
        load = await asyncio.to_thread(run, Job(site.stack.url, bodies, site.amounts.load_s, repeat=False))
        queued = await site.count(_OF_ACCOUNT, account, "queued")
        for session in sessions:
            await subject.client.stop(session)
        await asyncio.gather(*first, return_exceptions=True)
        await subject.client.close()
    return {**asdict(load), "queued": queued}


async def completions(site: Site) -> dict[str, Any]:
    """MessageSession in a closed loop, the model answers at once; and the processor time of it, by process."""
    used: Counter[str] = Counter()
    turns = 0
    loads: list[dict[str, Any]] = []
    with InstantProvider() as provider:
        subject = await _filled(site, provider, 1)
        # The first turn of a worker loads the provider's library.
        warm = await subject.messages(CLIENTS, 1.0, _MOST_A_SECOND)
        await asyncio.to_thread(run, replace(warm, warm_up_s=0.0))
        for _ in range(site.amounts.rounds):
            job = await subject.messages(CLIENTS, site.amounts.load_s, _MOST_A_SECOND)
            before, ended = processor.seconds(site.stack), await site.count(FINISHED)
            loads.append(asdict(await asyncio.to_thread(run, job)))
            turns += await site.count(FINISHED) - ended
            used.update(processor.between(before, processor.seconds(site.stack)))
        await subject.client.close()
    best = max(loads, key=lambda load: load["per_second"])
    return {
        **best,
        "error": next((load["error"] for load in loads if load["error"]), ""),
        "turns": turns,
        "ms_a_turn": {name: seconds / turns * 1000 for name, seconds in used.items()},
        "a_worker_core_second": turns / processor.of_workers(used),
    }


async def at_once(site: Site) -> dict[str, Any]:
    """Bursts of turns that wait a second each on their provider, in one worker process; seconds a turn.

    From the request to its answer; `own`: from the claim to the end, as the runs themselves tell.
    """
    with InstantProvider(WAIT_S) as provider:
        subject = await _filled(site, provider, 1)
        sessions = await subject.sessions(AT_ONCE)
        own: list[float] = []
        bursts: list[dict[str, Any]] = []
        # The first one opens connections.
        for number in range(_BURSTS + 1):
            bodies = [[subject.message(session, f"burst {number}")] for session in sessions]
            job = Job(site.stack.url, bodies, WAIT_S, repeat=False, warm_up_s=0.0)
            started = time.time_ns() // 1_000_000
            bursts.append(asdict(await asyncio.to_thread(run, job)))
            rows = await site.rows.fetch(_TOOK, subject.client.account, started)
            own = [*own, *(row["took"] / 1000 for row in rows)] if number else []
        await subject.client.close()
    return {
        "turns": AT_ONCE,
        "p50": max(burst["p50"] for burst in bursts[1:]) / 1000,
        "longest": max(burst["longest"] for burst in bursts[1:]) / 1000,
        "own": summary(own),
        "error": next((burst["error"] for burst in bursts if burst["error"]), ""),
    }


async def dispatch(site: Site) -> dict[str, Any]:
    """Another account's run, again and again its only one, beside an account with a queue that is kept full.

    From the message being sent to the model being asked, in ms; `claimed`: from the run's creation to its claim. The
    first account's turns, of 0.1 to 1.9 s, take all that an account may have at once.
    """
    asked: asyncio.Queue[float] = asyncio.Queue()

    def answer(_: dict[str, Any]) -> str:
        asked.put_nowait(time.monotonic())
        return "At last."

    delays: list[float] = []
    with InstantProvider(WAIT_S, 0.9 * WAIT_S) as provider:
        async with ScriptedProvider(answer, keep_requests=False) as mine:
            one, other = await _filled(site, provider, 1), Subject(site.stack.url)
            await other.add_provider("mine", mine.url)
            other.agents.append(await other.add_agent("Other", "mine"))
            count = site.amounts.first_runs
            sessions = await other.sessions(count + count // 4 + 1)

            async def first_run() -> float:
                sent = time.monotonic()
                await other.client.message(sessions.pop(), "me too")
                await asyncio.sleep(_PAUSE_S)
                return (asked.get_nowait() - sent) * 1000

            await first_run()
            alone = [await first_run() for _ in range(count // 4)]
            busy = await one.sessions(site.amounts.queued + AT_ONCE)
            bodies = [[one.message(session, f"{n}") for n in range(_BACKLOG_TURNS)] for session in busy]
            account = one.client.account

            async def full() -> bool:
                return await site.count(_OF_ACCOUNT, account, "queued") >= site.amounts.queued * 0.98

            least = site.amounts.queued
            with in_background(Job(site.stack.url, bodies, 300.0, repeat=False)):
                await site.until(full, "a full queue", every_s=0.2)
                since = time.time_ns() // 1_000_000
                for number in range(count):
                    delays.append(await first_run())
                    if number % 10 == 0:
                        least = min(least, await site.count(_OF_ACCOUNT, account, "queued"))
            claims = await site.rows.fetch(_STARTED, other.client.account, since)
            await one.client.call("DeleteAgent", agentId=one.agents[0])
            await one.client.close()
            await other.client.close()
    claimed = summary([row["took"] for row in claims])
    return {**summary(delays), "claimed": claimed, "queued": least, "alone": summary(alone)}


async def _filled(site: Site, provider: InstantProvider, agents: int) -> Subject:
    subject = Subject(site.stack.url)
    await subject.add_provider("instant", provider.url)
    for number in range(agents):
        subject.agents.append(await subject.add_agent(f"Agent {number}", "instant"))
    return subject
