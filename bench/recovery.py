"""Runs that are interrupted: a worker killed in mid-turn, a tree canceled."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from libs.stack import ManagedProcess
from libs.stack.scripted import Answer, Calls, Say, ScriptedProvider

from .live import summary
from .site import Site
from .subject import Subject

_TURNS = 6
_BRANCHES = 9
_LEAVES = 10
TREE = 1 + _BRANCHES + _BRANCHES * _LEAVES
_HELD = "SELECT id, session_id, worker FROM runs.runs WHERE status = 'running' AND account = $1"
_LIVE = "SELECT count(*) FROM runs.runs WHERE root_run_id = $1 AND finished_at IS NULL"
_ROOT = "SELECT id FROM runs.runs WHERE session_id = $1"


class _Gate(asyncio.Event):
    """Never opened unless it is set; knows how many answers it holds back."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = 0

    async def wait(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.holds += 1
        try:
            await super().wait()
        finally:
            self.holds -= 1
        return True


async def kills(site: Site) -> dict[str, Any]:
    """Seconds from `kill -9` of a worker that executes turns to the model being asked again, by another one."""
    asked: defaultdict[str, list[float]] = defaultdict(list)
    gate = _Gate()

    def answer(body: dict[str, Any]) -> Answer:
        text = _said(body)[-1]
        asked[text].append(time.monotonic())
        return Say(("…", "."), gate=gate) if len(asked[text]) == 1 else "Carried on."

    delays: list[float] = []
    async with ScriptedProvider(answer, keep_requests=False) as provider:
        subject = Subject(site.stack.url)
        await subject.add_provider("gated", provider.url)
        subject.agents.append(await subject.add_agent("Killed", "gated"))
        for number in range(site.amounts.kills):
            await _warm(site, subject, gate, f"warm {number}")
            gate.clear()
            texts = {session: f"{number}-{session}" for session in await subject.sessions(_TURNS)}
            calls = [asyncio.create_task(subject.client.message(*item)) for item in texts.items()]
            await site.until(_are(gate, _TURNS), "the model holds all turns")
            victim, orphans = await _busiest(site, subject)
            killed = time.monotonic()
            await asyncio.to_thread(victim.kill)
            mine = [texts[session] for session in orphans]
            await site.until(_again(asked, mine), "the turns go on", every_s=0.01)
            delays += [asked[text][1] - killed for text in mine]
            gate.set()
            answers = await asyncio.gather(*calls)
            if not all(answer.assistant_event_id for answer in answers):
                raise RuntimeError("a turn ended without an answer")
            victim.start()
            await asyncio.to_thread(victim.wait_ready)
        await subject.client.close()
    return {**summary(delays), "kills": site.amounts.kills}


async def cancels(site: Site) -> dict[str, Any]:
    """ms from CancelRun of a tree to the last of its runs having stopped, in the rows and at the model."""
    gate = _Gate()

    def answer(body: dict[str, Any]) -> Answer:
        role = _said(body)[0]
        if role == "root":
            return Calls([("delegate", {"brief": "branch"})] * _BRANCHES)
        return Calls([("delegate", {"brief": "leaf"})] * _LEAVES) if role == "branch" else Say(("…", "."), gate=gate)

    rows: list[float] = []
    streams: list[float] = []
    answers: list[float] = []
    async with ScriptedProvider(answer, keep_requests=False) as provider:
        subject = Subject(site.stack.url)
        await subject.add_provider("tree", provider.url)
        agent = await subject.add_agent("Tree", "tree")
        for _ in range(site.amounts.trees):
            session = await subject.client.create_session(agent)
            call = asyncio.create_task(subject.client.message(session, "root"))
            await site.until(_are(gate, _BRANCHES * _LEAVES), "the whole tree runs", every_s=0.05)
            root = str(await site.rows.fetchval(_ROOT, session))
            if (live := await site.count(_LIVE, root)) != TREE:
                raise RuntimeError(f"{live} runs of {TREE} are live")
            started = time.monotonic()
            cancel = asyncio.create_task(_timed(subject.client.call("CancelRun", runId=root)))

            async def stopped(root: str = root) -> bool:
                return await site.count(_LIVE, root) == 0

            closed = asyncio.create_task(site.until(_are(gate, 0), "the model is let go", every_s=0.005))
            rows.append((await site.until(stopped, "the runs stop", every_s=0.01) - started) * 1000)
            streams.append((await closed - started) * 1000)
            answers.append(await cancel)
            await asyncio.gather(call, return_exceptions=True)
            listed: Any = await subject.client.call("ListRuns", rootRunId=root, limit=TREE)
            if Counter(run.status for run in listed.runs) != {"canceled": TREE}:
                raise RuntimeError(f"not all canceled: {Counter(run.status for run in listed.runs)}")
        await subject.client.close()
    whole = [max(pair) for pair in zip(rows, streams, strict=True)]
    parts = {"rows": summary(rows), "streams": summary(streams), "call": summary(answers)}
    return {**summary(whole), "runs": TREE, **parts}


async def _timed(call: Awaitable[Any]) -> float:
    started = time.monotonic()
    await call
    return (time.monotonic() - started) * 1000


def _are(gate: _Gate, count: int) -> Callable[[], Awaitable[bool]]:
    async def done() -> bool:
        return gate.holds == count

    return done


def _again(asked: Mapping[str, list[float]], texts: list[str]) -> Callable[[], Awaitable[bool]]:
    async def done() -> bool:
        return all(len(asked[text]) > 1 for text in texts)

    return done


async def _warm(site: Site, subject: Subject, gate: _Gate, text: str) -> None:
    """Turns until both workers have executed one: the first one of a process loads the provider's library."""
    known: set[str] = set()
    async with asyncio.timeout(30):
        while len(known) < 2:
            gate.clear()
            sessions = await subject.sessions(_TURNS)
            calls = [asyncio.create_task(subject.client.message(session, f"{text} {session}")) for session in sessions]
            await site.until(_are(gate, _TURNS), "the model holds all turns")
            known |= {row["worker"] for row in await site.rows.fetch(_HELD, subject.client.account)}
            gate.set()
            await asyncio.gather(*calls)


async def _busiest(site: Site, subject: Subject) -> tuple[ManagedProcess, list[str]]:
    """The worker process that executes most turns, and the sessions of those."""
    held: defaultdict[str, list[str]] = defaultdict(list)
    for row in await site.rows.fetch(_HELD, subject.client.account):
        # <host>-<pid>-<random>
        held[row["worker"].rsplit("-", 2)[1]].append(row["session_id"])
    pid, sessions = max(held.items(), key=lambda item: len(item[1]))
    return next(process for process in site.stack.processes() if str(process.pid) == pid), sessions


def _said(body: dict[str, Any]) -> list[str]:
    """Texts of the user's messages, without who sent them."""
    contents = [message["content"] for message in body["messages"] if message["role"] == "user"]
    texts = [c if isinstance(c, str) else "".join(part.get("text", "") for part in c) for c in contents]
    return [text.rpartition("</message_sender>\n\n")[2] for text in texts]
