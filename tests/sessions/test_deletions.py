"""What deleting leaves behind, what runs is told, and what the sweep does when runs is away."""

from __future__ import annotations

import asyncio

import pytest

from tests.sessions.test_sessions import child
from tests.sessions.world import World, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def rows_of(world: World, session_id: str) -> int:
    tables = ("session_events", "session_turns", "attachments")
    counts = [await world.sql(f"SELECT 1 FROM {t} WHERE session_id = $1", session_id) for t in tables]
    return sum(map(len, counts)) + len(await world.sql("SELECT 1 FROM sessions WHERE id = $1", session_id))


async def test_delete_session(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    session_id = await c.session(agent_id)
    await world.answer((await c.say(session_id)).turn)
    await world.sql("INSERT INTO attachments VALUES ($1, 'a', 'n', NULL, 1, 1)", session_id)
    ears = await world.ears(c.id)
    got = await c("DeleteSession", session_id=session_id)
    assert (got.session_id, got.agent_id) == (session_id, agent_id)
    (hint,) = await ears.until("session-deleted")
    assert (hint.agent_id, hint.account_hint.session_id) == (agent_id, session_id)
    assert world.runs.detached[-1] == ("session_id", session_id) and await rows_of(world, session_id) == 0
    assert not await world.sql("SELECT 1 FROM deletions WHERE id = $1", session_id)
    for call, fields in (("GetSession", {}), ("MessageSession", {}), ("UpdateSession", {}), ("DeleteSession", {})):
        await c.fails(404, "Session not found", call, session_id=session_id, **fields)


async def test_a_live_turn_learns_what_is_gone(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    session_id = await c.session(agent_id)
    first = (await c.say(session_id, "a secret")).turn
    await world.begin(first.run_id)
    await c("DeleteSession", session_id=session_id)
    second = (await c.say(await c.session(agent_id))).turn
    await c("DeleteAgent", agent_id=agent_id)
    for turn, noun in ((first, "Session"), (second, "Agent")):
        for call, fields in (("BeginTurn", {}), ("AppendTurnEvents", {}), ("FinishTurn", {"status": "succeeded"})):
            await world.runner.fails(404, f"{noun} not found", call, run_id=turn.run_id, attempt=1, **fields)
        finish = {"run_id": turn.run_id, "attempt": 0, "status": "canceled"}
        await world.runner.fails(404, f"{noun} not found", "FinishTurn", **finish)
    (row,) = await world.sql("SELECT title, event_ids FROM session_turns WHERE run_id = $1", first.run_id)
    assert (row["title"], row["event_ids"]) == ("", []), "nothing of what was said is kept"


async def test_delete_agent(world: World) -> None:
    c = world.account()
    agent_id, other = await c.agent(), await c.agent()
    member, pending = await world.member(c, agent_id), await world.member(c, agent_id, accept=False)
    session_id = await c.session(agent_id)
    await world.answer((await c.say(session_id)).turn)
    own_child, foreign_child = await child(world, session_id), await child(world, session_id, other)
    foreign_parent = await c.session(other)
    await child(world, foreign_parent, agent_id)
    owner_hears, member_hears, pending_hears = [await world.ears(x.id) for x in (c, member, pending)]
    assert (await c("DeleteAgent", agent_id=agent_id)).agent_id == agent_id

    *changed, hint = await owner_hears.until("session_changed", "session_changed", "agent-deleted")
    states = {e.session_changed.session.id: e.session_changed.session for e in changed}
    assert not states[foreign_child].HasField("parent_session_id")
    assert states[foreign_parent].child_session_count == 0
    assert hint.agent_id == agent_id and list(hint.account_hint.accounts) == [c.id]
    (hint,) = await member_hears.until("agent-deleted")
    assert list(hint.account_hint.accounts) == [member.id] and hint.account == c.id
    assert not pending_hears.events and not (await pending("ListAgentInvites")).invites

    assert world.runs.detached[-1] == ("agent_id", agent_id)
    assert world.memory.dropped[-1] == world.triggers.dropped[-1] == agent_id
    for gone in (session_id, own_child):
        assert await rows_of(world, gone) == 0
    assert not await world.sql("SELECT 1 FROM agent_members WHERE agent_id = $1", agent_id)
    await c.fails(404, "Agent not found", "GetAgent", agent_id=agent_id)
    assert [a.id for a in (await c("ListAgents")).agents] == [other]


async def test_a_family_deleted_at_once(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    parent = await c.session(agent_id)
    family = [parent, *[await child(world, parent) for _ in range(5)]]
    await asyncio.gather(*(c("DeleteSession", session_id=s) for s in family))
    assert not (await c("ListSessions")).sessions


async def test_deleting_among_messages_leaves_no_rows(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    session_id = await c.session(agent_id)
    await world.answer((await c.say(session_id)).turn)
    calls = [c.say(session_id, str(i)) for i in range(8)]
    answers = await asyncio.gather(*calls, c("DeleteAgent", agent_id=agent_id), return_exceptions=True)
    refused = {str(a) for a in answers if isinstance(a, BaseException)}
    assert refused <= {"Session not found"}
    assert not await world.sql("SELECT 1 FROM session_events WHERE session_id = $1", session_id)
    left = await world.sql("SELECT state FROM session_turns WHERE session_id = $1", session_id)
    assert {row["state"] for row in left} <= {"gone"}


@pytest.mark.parametrize("name", ["memory", "triggers"])
async def test_the_sweep_tells_others_later(world: World, name: str) -> None:
    c = world.account()
    agent_id = await c.agent()
    service = world.memory if name == "memory" else world.triggers
    service.away = True
    try:
        await c("DeleteAgent", agent_id=agent_id)
        assert agent_id not in service.dropped and await world.sql("SELECT 1 FROM deletions WHERE id = $1", agent_id)
    finally:
        service.away = False
    await until(lambda: agent_id in service.dropped)


async def test_the_sweep_tells_runs_later(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    world.runs.away = True
    try:
        await c("DeleteAgent", agent_id=agent_id)
        assert ("agent_id", agent_id) not in world.runs.detached
    finally:
        world.runs.away = False
    await until(lambda: ("agent_id", agent_id) in world.runs.detached)
    deadline = asyncio.get_running_loop().time() + 5
    while await world.sql("SELECT 1 FROM deletions WHERE id = $1", agent_id):
        assert asyncio.get_running_loop().time() < deadline


async def test_the_sweep_starts_what_nobody_began(world: World) -> None:
    c = world.account()
    session_id = await c.session(await c.agent())
    turn = (await c.say(session_id, "hello")).turn
    await until(lambda: world.runs.starts(turn.run_id) >= 2)
    announced = next(r for r in world.runs.started if r.turn.run_id == turn.run_id)
    assert announced.turn == turn and announced.notify == ""
    await world.begin(turn.run_id)
    (row,) = await world.sql(
        "SELECT next_start_at - created_at AS later FROM session_turns WHERE run_id = $1", turn.run_id
    )
    assert row["later"] >= 60_000, "a turn that was begun is left in peace"


@pytest.mark.parametrize(
    ("ended", "begun", "status", "log"),
    [
        ("canceled", False, "idle", ["message"]),
        ("failed", True, "error", ["message", "error"]),
        ("succeeded", True, "idle", ["message"]),
    ],
)
async def test_the_sweep_settles_a_turn_whose_run_has_ended(
    world: World, ended: str, begun: bool, status: str, log: list[str]
) -> None:
    c = world.account()
    session_id = await c.session(await c.agent())
    turn = (await c.say(session_id, client_message_id="m")).turn
    world.runs.statuses[turn.run_id] = ended
    if begun:
        await world.begin(turn.run_id, 2)
        await world.sql("UPDATE session_turns SET next_start_at = 0 WHERE run_id = $1", turn.run_id)
    deadline = asyncio.get_running_loop().time() + 5
    while (await c.get(session_id)).status == "streaming":
        assert asyncio.get_running_loop().time() < deadline
    assert (await c.get(session_id)).status == status and [e["type"] for e in await c.events(session_id)] == log
    if ended != "failed":
        assert (await c.say(session_id, client_message_id="m")).outcome.status == ended
