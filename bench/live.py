"""What reaches subscribers, and when: fan-out of durable events, and the first byte of a model's answer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from libs.protocol import read_ws_event
from libs.protocol.ws import WsSessionAppend, WsSessionPartial
from libs.stack.scripted import Say, ScriptedProvider, clock_chunk

from .load import percentile
from .sockets import Job, Subscribers
from .subject import Subject

_MESSAGES = 20
_TURNS = 60
_SPACING_S = 0.25
_PATIENCE_S = 30.0


def summary(values: list[float]) -> dict[str, float]:
    """p50, p95, p99 and the longest, in the unit given."""
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "p50": percentile(ordered, 0.5),
        "p95": percentile(ordered, 0.95),
        "p99": percentile(ordered, 0.99),
        "longest": ordered[-1],
    }


async def fan_out(subject: Subject, subscribers: int) -> dict[str, Any]:
    """Durable events to that many sockets, ms from the event's createdAt (before its commit) to each frame.

    The events are messages that wait behind a turn which a gate holds, so nothing else happens meanwhile.
    """
    gate = asyncio.Event()
    async with ScriptedProvider(Say(("…", "."), gate=gate), keep_requests=False) as provider:
        await subject.add_provider("gated", provider.url)
        agent = await subject.add_agent("Gated", "gated")
        session = await subject.client.create_session(agent)
        first = asyncio.create_task(subject.client.message(session, "Hold on"))
        await _until(lambda: _is_streaming(subject, session))
        subscribe = {"_": "Subscribe", "key": f"sessions/{session}", "afterSeq": 1}
        job = Job(subject.url, [subject.sign(subscribe) for _ in range(subscribers)], frames=False)
        with await asyncio.to_thread(lambda: Subscribers(job).__enter__()) as sockets:
            for number in range(_MESSAGES):
                started = time.monotonic()
                await subject.client.message(session, f"mark-{number}!")
                await asyncio.sleep(max(0.0, _SPACING_S - (time.monotonic() - started)))
            arrivals: dict[str, list[int]] = await asyncio.to_thread(sockets.results)
        events = (await subject.client.session(session)).events
        await subject.client.stop(session)
        gate.set()
        await asyncio.wait({first})
    committed = {e.event["content"]: e.created_at for e in events if e.event.get("role") == "user"}
    each: list[float] = []
    last: list[float] = []
    for number in range(_MESSAGES):
        times = arrivals.get(str(number), [])
        if len(times) != subscribers:
            raise RuntimeError(f"{len(times)} of {subscribers} subscribers got event {number}")
        delays = [arrived / 1e6 - committed[f"mark-{number}!"] for arrived in times]
        each += delays
        last.append(max(delays))
    return {"subscribers": subscribers, "each": summary(each), "all": summary(last)}


async def first_byte(subject: Subject) -> dict[str, Any]:
    """Turn after turn with one subscriber: ms from the provider's first text to its frame, from createdAt to append."""
    async with ScriptedProvider(Say((clock_chunk,) * 3, delay_s=0.03), keep_requests=False) as provider:
        await subject.add_provider("clock", provider.url)
        agent = await subject.add_agent("Clock", "clock")
        session = await subject.client.create_session(agent)
        subscribe = {"_": "Subscribe", "key": f"sessions/{session}"}
        job = Job(subject.url, [subject.sign(subscribe)], frames=True)
        with await asyncio.to_thread(lambda: Subscribers(job).__enter__()) as sockets:
            for number in range(_TURNS):
                await subject.client.message(session, f"Turn {number}")
            frames: list[tuple[int, int, str]] = await asyncio.to_thread(sockets.results)
    text: dict[str, float] = {}
    later: list[float] = []
    appends: list[float] = []
    for wall, mono, frame in frames:
        event = read_ws_event(frame)
        if isinstance(event, WsSessionAppend):
            # The user's message: what follows it waits for nothing, so its way is the way of any durable event.
            if msgspec.json.decode(event.event.event).get("role") == "user":
                appends.append(wall / 1e6 - event.event.created_at)
        elif isinstance(event, WsSessionPartial) and isinstance(event.patch.text_delta, str):
            stamp = int(event.patch.text_delta.split()[0])
            delay = (mono - stamp) / 1e6
            if event.partial_id in text:
                later.append(delay)
            else:
                text[event.partial_id] = delay
    if len(text) != _TURNS or len(appends) != _TURNS:
        raise RuntimeError(f"{len(text)} first texts and {len(appends)} messages of {_TURNS} turns arrived")
    return {
        "first_byte_to_frame": summary(list(text.values())),
        "later_text_to_frame": summary(later),
        "commit_to_frame": summary(appends),
    }


async def _is_streaming(subject: Subject, session: str) -> bool:
    runs: Any = await subject.client.call("ListRuns", sessionId=session)
    return any(run.status == "running" for run in runs.runs)


async def _until(probe: Any) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not await probe():  # noqa: ASYNC110 - the state is in another process
            await asyncio.sleep(0.02)
