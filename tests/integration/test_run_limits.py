"""Runs under settings of their own: budgets that run out, and titles."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec import UNSET

from libs.protocol.actions import CancelRun, GetRun, GetRunJournal, StopSession
from libs.protocol.runs import RunInfo
from libs.stack import Stack
from libs.stack.scripted import Calls
from tests.support.cast import Tree, delegate, held, let_go
from tests.support.kit import World, refused, until

WALL_MS = 1_500


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose runs have little time, and whose sessions name themselves."""
    env = {"SEED_AGENTS_RUN_WALL_MS": str(WALL_MS), "SEED_AGENTS_SESSION_TITLE_GENERATION": "true"}
    with Stack(tmp_path_factory.mktemp("tight") / "data", 0, edges=1, workers=1, env=env) as running:
        yield running


@pytest.fixture
async def world(tight: Stack) -> AsyncIterator[World]:
    async with World(tight.urls) as made:
        yield made


async def paused(world: World) -> Tree:
    """A run that waited for a child for longer than it has time."""
    child = held()
    tree = await Tree.of(world, {"go": [Calls([delegate("long")]), "Back."], "long": child})
    tree.owner.provider.aside = "A title"
    await tree.owner.client.call("UpdateSession", sessionId=tree.session, title="Named")
    await tree.say()
    parent = await tree.reached("waiting")
    await until(lambda: time.time() * 1000 > parent.created_at + WALL_MS, what="its time")
    let_go(child)

    async def pause() -> RunInfo | None:
        run = await tree.run()
        return run if run.wait is not UNSET and run.wait.reason == "budget-pause" else None  # pyright: ignore[reportAttributeAccessIssue]

    await until(pause, what="the pause")
    return tree


async def signal(tree: Tree, name: str = "go-on") -> bool:
    run = await tree.run()
    return (await tree.owner.client.call("SignalRun", runId=run.id, signal=name)).delivered


async def test_a_run_out_of_time_waits_for_a_signal_and_goes_on_for_good(world: World) -> None:
    tree = await paused(world)
    run = await tree.run()
    wait: Any = run.wait
    assert (run.status, wait.label) == ("waiting", "The run has used up its time of 1 s. A signal lets it go on.")
    assert await tree.owner.status(tree.session) == "idle"
    stranger = world.client()
    with refused(404, "Run not found"):
        await stranger.call("SignalRun", runId=run.id, signal="x")
    with refused(400, "Signal is required"):
        await tree.owner.client.call("SignalRun", runId=run.id, signal=" ")
    assert (await tree.owner.client.call(GetRunJournal(run_id=run.id))).entries == []

    assert await signal(tree)
    assert (await tree.reached("succeeded")).wait is UNSET
    assert [p.get("content") for p in await tree.payloads()][-1] == "Back."
    assert not await signal(tree)


@pytest.mark.parametrize("by", ["run", "session"])
async def test_a_paused_run_is_canceled_and_the_session_takes_the_next_message(world: World, by: str) -> None:
    tree = await paused(world)
    run = await tree.run()
    if by == "run":
        assert (await tree.owner.client.call(CancelRun(run_id=run.id))).canceled
    else:
        assert (await tree.owner.client.call(StopSession(session_id=tree.session))).stopped
    assert (await tree.owner.client.call(GetRun(run_id=run.id))).run.status == "canceled"
    assert not await signal(tree)
    answer = await tree.owner.client.message(tree.session, "next")
    assert answer.assistant_event_id == (await tree.owner.events(tree.session))[-1].id


async def test_an_untitled_session_is_named_by_its_model_and_told_of(world: World) -> None:
    owner = await world.owner("It rains.")
    owner.provider.aside = "Title: Rain in May.\nWhether it rains."
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    account = world.watch(owner.client, f"account/{owner.client.account}")
    await owner.client.message(session, "Does it rain?")
    named = await watch.wait(lambda e: getattr(getattr(e, "value", None), "title", UNSET) == "Rain in May")
    assert named.value.description == "Whether it rains."
    await until(lambda: "session-updated" in account.hints(), what="the hint")
    [run] = await owner.runs(session)
    # What the title took is nobody's usage.
    assert run.usage.total == 10  # pyright: ignore[reportAttributeAccessIssue]
