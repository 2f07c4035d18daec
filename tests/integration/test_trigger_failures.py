"""Triggers while parts die: a firing is carried out once, whoever is left to do it, and a signal wakes once."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import aiohttp
import pytest

from libs.stack import ManagedProcess, Stack
from tests.integration.conftest import ENVIRONMENT
from tests.support.kit import Owner, World, until

RECOVERY_S = 60.0
ONCE = {"type": "schedule", "schedule": {"kind": "once", "runAt": 1_000}}


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack to break, whose clocks are looked at often."""
    env = {
        **ENVIRONMENT,
        "SEED_AGENTS_ACTIVITY_POLL_INTERVAL_MS": "100",
        "SEED_AGENTS_ENDED_RUNS_POLL_MS": "50",
        "SEED_AGENTS_FIRING_SWEEP_MS": "500",
        "SEED_AGENTS_HM_SERVER_URL": "http://127.0.0.1:9",
    }
    with Stack(tmp_path_factory.mktemp("frail") / "data", 0, edges=1, workers=1, env=env) as running:
        yield running


@pytest.fixture
async def world(frail: Stack) -> AsyncIterator[World]:
    async with World(frail.urls) as made:
        yield made


async def create(owner: Owner, **more: Any) -> Any:
    trigger = {"name": "T", "enabled": True, "prompt": "Look.", "source": ONCE, **more}
    return await owner.client.call("CreateAgentTrigger", agentId=owner.agent, trigger=trigger)


async def firings(owner: Owner, trigger_id: str) -> Any:
    return (await owner.client.call("GetAgentTrigger", triggerId=trigger_id)).firings


async def carried_out(owner: Owner, trigger_id: str) -> Any:
    """Its one firing, once it has a session."""

    async def probe() -> Any:
        found = await firings(owner, trigger_id)
        return found if found and isinstance(found[0].session_id, str) else None

    [firing] = await until(probe, RECOVERY_S, "the firing carried out")
    return firing


async def restart(process: ManagedProcess) -> None:
    process.start()
    await asyncio.to_thread(process.wait_ready, RECOVERY_S)


async def test_two_more_monitors_fire_everything_once(frail: Stack, world: World) -> None:
    command = frail.process("triggers").command
    ports = {"SEED_AGENTS_GRPC_PORT": "0", "SEED_AGENTS_METRICS_PORT": "0"}
    env, quiet = {**command.env, **ports}, subprocess.DEVNULL
    argv = [*command.argv[:-1], "monitor"]
    others = [await asyncio.create_subprocess_exec(*argv, env=env, stdout=quiet, stderr=quiet) for _ in range(2)]
    try:
        owner = await world.owner("ok")
        ends = await create(owner, name="Ends", source={"type": "run-completed", "titleMatch": "clock"})
        at = int(time.time() * 1000) + 1_000
        clocks = [
            (
                await create(
                    owner, name=f"Clock {n}", source={"type": "schedule", "schedule": {"kind": "once", "runAt": at}}
                )
            )
            for n in range(8)
        ]
        for made in clocks:
            firing = await carried_out(owner, made.trigger.id)
            assert (await owner.at_rest(firing.session_id)).status == "idle"
        await until(lambda: _count(owner, ends.trigger.id, len(clocks)), RECOVERY_S, "the ends")
        await asyncio.gather(*(_rest(owner, firing) for firing in await firings(owner, ends.trigger.id)))
        # Nothing is left to come: each has fired once, and each end once.
        assert [len(await firings(owner, made.trigger.id)) for made in clocks] == [1] * len(clocks)
        assert len(await firings(owner, ends.trigger.id)) == len(clocks)
        sessions = (await owner.client.call("ListSessions", agentId=owner.agent, limit=200)).sessions
        assert len(sessions) == 2 * len(clocks)
        assert all(other.returncode is None for other in others)
    finally:
        for other in others:
            if other.returncode is None:
                other.terminate()
        await asyncio.gather(*(other.wait() for other in others))


async def _count(owner: Owner, trigger_id: str, wanted: int) -> bool:
    found = await firings(owner, trigger_id)
    return len([f for f in found if isinstance(f.session_id, str)]) == wanted


async def _rest(owner: Owner, firing: Any) -> None:
    await owner.at_rest(firing.session_id)


async def test_a_monitor_dies_between_a_firing_and_its_session(frail: Stack, world: World) -> None:
    """Sessions is away, so the firing is recorded and not carried out; then the monitor is killed."""
    owner = await world.owner("ok")
    at = int(time.time() * 1000) + 1_500
    made = await create(owner, source={"type": "schedule", "schedule": {"kind": "once", "runAt": at}})
    sessions, triggers = frail.process("sessions"), frail.process("triggers")
    sessions.kill()
    try:
        await until(lambda: time.time() * 1000 > at + 1_000, what="the time")
        triggers.kill()
    finally:
        await restart(sessions)
    await restart(triggers)
    firing = await carried_out(owner, made.trigger.id)
    await owner.at_rest(firing.session_id)
    listed = (await owner.client.call("ListSessions", agentId=owner.agent)).sessions
    assert [session.id for session in listed] == [firing.session_id]
    assert [role for role, _ in await owner.said(firing.session_id)] == ["user", "assistant"]


async def test_a_worker_and_the_monitor_die_while_a_firing_runs(frail: Stack, world: World) -> None:
    owner = await world.owner("ok")
    ends = await create(owner, name="Ends", source={"type": "run-completed"})
    made = await create(owner)
    frail.process("triggers").crash()
    frail.process("worker").crash()
    firing = await carried_out(owner, made.trigger.id)
    await owner.at_rest(firing.session_id, RECOVERY_S)
    ended = await carried_out(owner, ends.trigger.id)
    await owner.at_rest(ended.session_id, RECOVERY_S)
    assert len(await firings(owner, made.trigger.id)) == len(await firings(owner, ends.trigger.id)) == 1


async def _told(owner: Owner, trigger_id: str) -> Any:
    [firing] = await firings(owner, trigger_id)
    return firing.status if firing.status != "created" else None


async def test_a_signal_wakes_a_parked_run_once(frail: Stack, world: World, tmp_path_factory: Any) -> None:
    env = {**ENVIRONMENT, "SEED_AGENTS_RUN_WALL_MS": "1", "SEED_AGENTS_HM_SERVER_URL": "http://127.0.0.1:9"}
    with Stack(tmp_path_factory.mktemp("paused") / "data", 0, edges=1, workers=1, env=env) as paused:
        async with World(paused.urls) as there, aiohttp.ClientSession() as http:
            owner, other = await there.owner("Awake."), await there.owner()
            session = await owner.session()
            sent = asyncio.create_task(owner.client.message(session, "Wait"))

            async def parked() -> Any:
                found = await owner.runs(session)
                return found[0] if found and found[0].status == "waiting" else None

            run = await until(parked, what="the run parked")
            await sent
            wake = {"kind": "wake", "signal": "go", "runId": run.id}
            hooks = [
                (who, await create(who, source={"type": "webhook"}, continuation=wake)) for who in (other, owner, owner)
            ]
            statuses: list[Any] = []
            for who, made in hooks:
                address = f"{paused.url}/agents/api/webhooks/{made.trigger.id}/{made.webhook_secret}"
                async with http.post(address, json={}) as answer:
                    assert answer.status == 202
                statuses.append(await until(partial(_told, who, made.trigger.id), what="the delivery"))
            # Another account's trigger finds nobody, the owner's first one wakes it, the second comes too late.
            assert statuses == ["no-listener", "delivered", "no-listener"]
            await owner.at_rest(session)
            assert (await owner.said(session))[-1] == ("assistant", "Awake.")
            woken = await owner.client.call("GetAgentTrigger", triggerId=hooks[1][1].trigger.id)
            assert isinstance(woken.trigger.last_fired_at, int) and woken.sessions == []
