"""GetRun, ListRuns, CancelRun over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.protocol.actions import CancelRun, GetRun, ListRuns, StopSession
from libs.protocol.runs import RunInfo
from libs.protocol.ws import WsRunChange
from libs.stack.scripted import Fail, Say
from tests.support.kit import NOWHERE, World, refused, until


async def runs(client: Any, **fields: Any) -> list[RunInfo]:
    return (await client.call(ListRuns(**fields))).runs


async def test_a_run_tells_what_it_was(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    await owner.client.message(session, "What a question\nand more")
    [listed] = await runs(owner.client, session_id=session)
    run = (await owner.client.call(GetRun(run_id=listed.id))).run
    assert run == listed
    assert (run.status, run.kind, run.origin, run.depth) == ("succeeded", "agent", "user", 0)
    assert (run.root_run_id, run.session_id, run.agent_id) == (run.id, session, owner.agent)
    assert (run.account, run.title) == (owner.client.account, "What a question")
    assert isinstance(run.started_at, int) and isinstance(run.finished_at, int)
    assert run.created_at <= run.started_at <= run.finished_at <= run.updated_at


async def test_listings_by_tree_session_and_agent(world: World) -> None:
    owner = await world.owner()
    one, two = await owner.session(), await owner.session()
    for session in (one, one, two):
        await owner.client.message(session, "hi")
    newest, oldest = await runs(owner.client, session_id=one)
    assert newest.created_at >= oldest.created_at
    assert [run.id for run in await runs(owner.client, root_run_id=oldest.id)] == [oldest.id]
    everything = await runs(owner.client, agent_id=owner.agent)
    assert {run.session_id for run in everything} == {one, two}
    assert len(everything) == 3
    assert everything[1:] == [newest, oldest] or everything[0].session_id == two
    assert len(await runs(owner.client, agent_id=owner.agent, limit=2)) == 2


async def test_a_status_is_applied_before_the_limit(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    owner.provider.script.append(Fail(400, "no"))
    with pytest.raises(Exception, match="502"):
        await owner.client.message(session, "fails")
    await owner.client.message(session, "works")
    [failed] = await runs(owner.client, session_id=session, status="failed", limit=1)
    assert failed.status == "failed"
    assert failed.error and failed.error.code == "provider-error"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "ListRuns requires rootRunId, sessionId, or agentId"),
        ({"sessionId": "a", "agentId": "b"}, "ListRuns takes exactly one of rootRunId, sessionId, agentId"),
    ],
)
async def test_exactly_one_of_three(world: World, fields: dict[str, str], message: str) -> None:
    owner = await world.owner()
    with refused(400, message):
        await owner.client.send({"_": "ListRuns", **fields})


async def test_who_may_see_and_cancel(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    await owner.client.message(session, "hi")
    [run] = await owner.runs(session)
    reader, stranger = await world.member(owner, "reader"), world.client()
    assert (await reader.call(GetRun(run_id=run.id))).run == run
    with refused(403, "Write access is required"):
        await reader.call(CancelRun(run_id=run.id))
    for action in (GetRun(run_id=run.id), CancelRun(run_id=run.id), ListRuns(root_run_id=run.id)):
        with refused(404, "Run not found"):
            await stranger.call(action)
    with refused(404, "Session not found"):
        await runs(stranger, session_id=session)
    with refused(404, "Agent not found"):
        await runs(stranger, agent_id=owner.agent)
    with refused(404, "Run not found"):
        await owner.client.call(GetRun(run_id=NOWHERE))


async def test_cancel_ends_a_live_run_once(world: World) -> None:
    owner = await world.owner(Say(("a", "b"), gate=asyncio.Event()))
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    turn = asyncio.create_task(owner.client.message(session, "hi"))
    await watch.streamed("a")
    [run] = await owner.runs(session)
    answer = await owner.client.call(CancelRun(run_id=run.id))
    assert (answer.run_id, answer.canceled) == (run.id, True)
    assert (await owner.at_rest(session)).status == "idle"
    await asyncio.wait({turn}, timeout=20)
    assert (await owner.client.call(GetRun(run_id=run.id))).run.status == "canceled"
    assert (await owner.client.call(CancelRun(run_id=run.id))).canceled is False
    assert await owner.said(session) == [("user", "hi"), ("assistant", "a")]


async def test_cancel_of_a_queued_run_leaves_the_turn_before_it(world: World) -> None:
    gate = asyncio.Event()
    owner = await world.owner(Say(("a", "b"), gate=gate))
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    turn = asyncio.create_task(owner.client.message(session, "one"))
    await watch.streamed("a")
    await owner.client.message(session, "two")
    [queued, running] = await owner.runs(session)
    assert (queued.status, running.status) == ("queued", "running")
    assert (await owner.client.call(CancelRun(run_id=queued.id))).canceled is True
    gate.set()
    assert (await turn).assistant_event_id
    await owner.at_rest(session)
    assert [run.status for run in await owner.runs(session)] == ["canceled", "succeeded"]
    assert len(owner.provider.requests) == 1


@pytest.mark.parametrize("by", ["run", "session"])
async def test_cancel_of_a_run_that_pauses_before_another_try(world: World, by: str) -> None:
    """A message behind another one is tried again after a failure; while it pauses nothing of it is at work."""
    gate = asyncio.Event()
    owner = await world.owner("After all.")
    owner.provider.script += [Say(("a", "b"), gate=gate), Say(("c",), cut=True)]
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    turn = asyncio.create_task(owner.client.message(session, "one"))
    await watch.streamed("a")
    await owner.client.message(session, "two")
    gate.set()
    await turn

    async def pauses() -> bool:
        [second, _] = await owner.runs(session)
        return second.status == "queued" and len(owner.provider.requests) == 2

    await until(pauses, what="the pause")
    if by == "run":
        assert (await owner.client.call(CancelRun(run_id=(await owner.runs(session))[0].id))).canceled
    else:
        assert (await owner.client.call(StopSession(session_id=session))).stopped
    assert (await owner.at_rest(session)).status == "idle"
    assert (await owner.client.message(session, "three")).assistant_event_id
    assert [run.status for run in await owner.runs(session)] == ["succeeded", "canceled", "succeeded"]
    assert await owner.said(session) == [
        ("user", "one"), ("user", "two"), ("assistant", "ab"), ("user", "three"), ("assistant", "After all."),
    ]  # fmt: skip


async def test_the_tree_key_replays_and_goes_on(world: World) -> None:
    """A subscriber that comes late gets every run of the tree as it is, then what changes."""
    gate = asyncio.Event()
    owner = await world.owner(Say(("a", "b"), gate=gate))
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    turn = asyncio.create_task(owner.client.message(session, "hi"))
    await watch.streamed("a")
    [run] = await owner.runs(session)
    late = world.watch(world.at(owner.client, 1), f"runs/{run.id}")
    first = await late.kind(WsRunChange)
    assert (first.value.id, first.value.status) == (run.id, "running")
    gate.set()
    await turn
    last = await late.wait(lambda e: isinstance(e, WsRunChange) and e.value.status == "succeeded")
    assert last.value.usage.total == 10
    ended = world.watch(owner.client, f"runs/{run.id}")
    assert (await ended.kind(WsRunChange)).value == last.value
