"""The first trigger of a new agent is asked for once the agent is there, and never keeps it from being made."""

from __future__ import annotations

import pytest

from libs.errors import Invalid, Unavailable
from tests.sessions.world import World, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


def greetings(world: World, agent_id: str) -> list[tuple[str, str, str]]:
    """What triggers was asked for the agent: owner, name, account."""
    return [(g.owner, g.agent_name, g.account_id) for g in world.triggers.greeted if g.agent_id == agent_id]


async def test_an_agent_that_signs_gets_its_trigger_at_once(world: World) -> None:
    c = world.account()
    for key in ("main", "second"):
        world.providers.keys.add((c.id, key))
        world.providers.accounts[key] = f"z6Mk{key}"
    listed = await c.agent(signingKeys=["second", "main"])
    legacy = await c.agent(signingKey="main", signingKeys=["second"], name="Legacy")
    assert greetings(world, listed) == [(c.id, "Stub agent", "z6Mksecond")]
    assert greetings(world, legacy) == [(c.id, "Legacy", "z6Mkmain")]
    assert not await world.sql("SELECT 1 FROM newcomers WHERE owner = $1", c.id)


async def test_an_agent_that_signs_as_nobody_known_gets_none(world: World) -> None:
    c = world.account()
    world.providers.keys.add((c.id, "nameless"))
    for definition in ({}, {"signingKeys": ["nameless"]}):
        agent_id = await c.agent(**definition)
        assert not greetings(world, agent_id)
        assert not await world.sql("SELECT 1 FROM newcomers WHERE agent_id = $1", agent_id)


async def test_the_sweep_asks_when_triggers_was_away(world: World) -> None:
    c = world.account()
    world.providers.keys.add((c.id, "late"))
    world.providers.accounts["late"] = "z6Mklate"
    world.triggers.refuses = Unavailable("away")
    try:
        agent_id = await c.agent(signingKeys=["late"])
        gone = await c.agent(signingKeys=["late"])
        assert await world.sql("SELECT 1 FROM newcomers WHERE agent_id = $1", agent_id)
        await c("DeleteAgent", agent_id=gone)
    finally:
        world.triggers.refuses = None
    assert await until(lambda: greetings(world, agent_id)) == [(c.id, "Stub agent", "z6Mklate")]
    assert not greetings(world, gone)


async def test_a_refused_trigger_is_not_asked_for_again(world: World) -> None:
    c = world.account()
    world.providers.keys.add((c.id, "odd"))
    world.providers.accounts["odd"] = "z6Mkodd"
    world.triggers.refuses = Invalid("odd")
    try:
        agent_id = await c.agent(signingKeys=["odd"])
    finally:
        world.triggers.refuses = None
    assert not await world.sql("SELECT 1 FROM newcomers WHERE agent_id = $1", agent_id)
