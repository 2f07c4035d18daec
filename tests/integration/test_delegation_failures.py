"""Workers killed in the middle of trees: every call is answered once, every tree ends, nothing is said twice."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest

from libs.protocol.runs import RunInfo
from libs.protocol.ws import WsSessionAppend, WsSessionPartial
from libs.stack import Stack
from libs.stack.scripted import Answer, Calls, Say
from tests.integration.conftest import ENVIRONMENT
from tests.support.cast import ENDED, delegate, said_by_users
from tests.support.kit import Owner, Watch, World, until

TREES = 8
RECOVERY_S = 60.0
TYPED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two workers to kill, soon missed."""
    env = {**ENVIRONMENT, "SEED_AGENTS_LEASE_MS": "2000", "SEED_AGENTS_RUNS_PER_ACCOUNT": "64"}
    with Stack(tmp_path_factory.mktemp("frail-trees") / "data", 0, workers=2, env=env) as running:
        yield running


@pytest.fixture
async def broken(frail: Stack) -> AsyncIterator[World]:
    async with World(frail.urls) as made:
        yield made


def model(body: dict[str, Any]) -> Answer:
    """What to say is told by the conversation alone, so that every attempt says the same."""
    kind, number = said_by_users(body)[0].split()
    answered = [m for m in body["messages"] if m["role"] == "tool"]
    if kind == "tree" and not answered:
        return Calls([delegate(f"slow {number}"), delegate(f"middle {number}"),
                      delegate(f"typed {number}", output=TYPED)], before="Asking.")  # fmt: skip
    if kind == "middle" and not answered:
        return Calls([delegate(f"leaf {number}")])
    if kind == "typed":
        return Calls([("return_result", {"n": int(number)})])
    if kind == "slow":
        return Say(("slow", " and", " steady"), delay_s=0.1)
    return f"{kind} {number} is done."


def called(event: Any) -> bool:
    return _payload(event).get("name") == "delegate" and _payload(event)["type"] == "tool_call"


def answered(event: Any) -> bool:
    return bool(re.match(r"(leaf|middle) ", str(_payload(event).get("content")))) and "done" in str(_payload(event))


def delivered(event: Any) -> bool:
    return _payload(event).get("type") == "tool_result"


def streamed(event: Any) -> bool:
    return isinstance(event, WsSessionPartial) and isinstance(event.patch.text_delta, str)


def _payload(event: Any) -> dict[str, Any]:
    return msgspec.json.decode(event.event.event) if isinstance(event, WsSessionAppend) else {}


MOMENTS: tuple[Callable[[Any], bool], ...] = (called, answered, delivered, called)


async def test_workers_are_killed_all_over_the_trees(frail: Stack, broken: World) -> None:
    owner = await broken.owner(model)
    chance = random.Random(7)
    feed = broken.watch(owner.client, f"account/{owner.client.account}")
    sessions: list[str] = []
    calls: list[asyncio.Task[Any]] = []

    async def load() -> None:
        for n in range(TREES):
            sessions.append(await owner.session())
            calls.append(asyncio.create_task(owner.client.message(sessions[-1], f"tree {n}")))
            await until(lambda n=n: _asked(owner, f"tree {n}"), RECOVERY_S, "the next tree")

    # Both workers have met the provider: what follows is about trees, not about how long a worker takes to start.
    await asyncio.gather(*[_warm(owner, n) for n in range(4)])
    loading = asyncio.create_task(load())
    for n, moment in enumerate(MOMENTS):
        await _happens(feed, moment, chance.randrange(3), loading)
        worker = frail.process("worker", n % 2)
        await asyncio.to_thread(worker.kill)
        worker.start()
    await loading
    async with asyncio.timeout(RECOVERY_S):
        await asyncio.gather(*calls)
    for number, session in enumerate(sessions):
        await _is_whole(owner, session, number)


def _asked(owner: Owner, opening: str) -> bool:
    return any(said_by_users(body)[0] == opening for body in owner.provider.requests)


async def _warm(owner: Owner, number: int) -> None:
    await owner.client.message(await owner.session(), f"leaf {100 + number}")


async def _happens(feed: Watch, moment: Callable[[Any], bool], more: int, loading: asyncio.Task[None]) -> None:
    """Wait until it happens anew and some more events came, or all trees have been begun."""
    at = len(feed.events)

    def happened() -> bool:
        found = next((n for n, event in enumerate(feed.events[at:], at) if moment(event)), None)
        return loading.done() or (found is not None and len(feed.events) > found + more)

    await until(happened, RECOVERY_S, "a moment to kill a worker")


async def _is_whole(owner: Owner, session: str, number: int) -> None:
    async def over() -> list[RunInfo] | None:
        [root] = await owner.runs(session)
        runs = (await owner.client.call("ListRuns", rootRunId=root.id)).runs
        return runs if all(run.status in ENDED for run in runs) else None

    runs = await until(over, RECOVERY_S, f"the end of tree {number}")
    assert runs is not None and {run.status for run in runs} == {"succeeded"}
    by_id = {run.id: run for run in runs}
    assert len({run.session_id for run in runs}) == len(runs)
    for run in runs:
        assert isinstance(run.session_id, str)
        events = await owner.events(run.session_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        payloads = [event.event for event in events]
        called = Counter(p["id"] for p in payloads if p["type"] == "tool_call")
        results = Counter(p["toolCallId"] for p in payloads if p["type"] == "tool_result")
        assert called == results and set(called.values()) <= {1}
        for result in payloads:
            if result["type"] != "tool_result" or result["name"] != "delegate" or "error" in result:
                continue
            child = by_id[result["output"]["runId"]]
            assert (child.parent_run_id, child.parent_tool_call_id) == (run.id, result["toolCallId"])
            assert result["output"]["sessionId"] == child.session_id
            expected = {"n": number} if child.title.startswith("typed") else {"text": _said(child.title)}
            assert (result["output"]["status"], result["output"]["output"]) == ("succeeded", expected)
        said = [p["content"] for p in payloads if p.get("role") == "assistant"]
        if not run.title.startswith("typed"):
            assert said[-1] == _said(run.title)
            assert Counter(said)[said[-1]] == 1
    # A delegated call without a child is one that was interrupted before it had one.
    assert len(runs) <= 5 and any(run.title == f"tree {number}" for run in runs)


def _said(title: str) -> str:
    return "slow and steady" if title.startswith("slow") else f"{title} is done."
