"""`seed-agents ops runs` and `ops workers` against the whole system."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from libs.stack import Stack
from libs.stack.ops_cli import app
from libs.stack.scripted import Say
from tests.support.kit import NOWHERE, Owner, World, until


class Ops:
    """The command line, as an operator of the test's stack types it."""

    def __init__(self, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("INTERNAL_KEY", "RUNS_ADDR"):
            monkeypatch.delenv(f"SEED_AGENTS_{name}", raising=False)
        self._data = ["--data-dir", str(stack.data_dir)]

    async def run(self, *words: str, code: int = 0) -> str:
        """What a command prints; on failure what it complains of."""
        result = await asyncio.to_thread(CliRunner().invoke, app, [*words, *self._data])
        assert result.exit_code == code, result.output
        return result.output

    async def json(self, *words: str) -> Any:
        """What a command prints as JSON."""
        return json.loads(await self.run(*words, "--json"))

    async def worker(self) -> dict[str, Any]:
        """The stack's worker."""
        [worker] = (await self.json("workers", "list"))["workers"]
        return worker


@pytest.fixture
def ops(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Ops:
    return Ops(stack, monkeypatch)


async def busy(world: World, gate: asyncio.Event) -> tuple[Owner, str, list[asyncio.Task[Any]], str, str]:
    """A session with a turn that streams until the gate opens, and one that waits behind it."""
    owner = await world.owner(Say(("a", "b"), gate=gate))
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    turn = asyncio.create_task(owner.client.message(session, "one"))
    await watch.streamed("a")
    await owner.client.message(session, "two")
    [queued, running] = await owner.runs(session)
    return owner, session, [turn], running.id, queued.id


async def test_list_show_and_queue(world: World, ops: Ops) -> None:
    gate = asyncio.Event()
    owner, session, turns, running, queued = await busy(world, gate)
    account = owner.client.account

    listed = await ops.json("runs", "list", "--account", account)
    assert [item["run"]["id"] for item in listed["runs"]] == [queued, running]
    waits, runs = listed["runs"]
    assert waits["waiting"] == {"reason": "session-busy", "until": 0, "behindRunId": running}
    assert (runs["run"]["status"], runs["background"], waits["background"]) == ("running", False, True)
    assert runs["worker"] == (await ops.worker())["id"]

    first = await ops.json("runs", "list", "--account", account, "--limit", "1")
    rest = await ops.json("runs", "list", "--account", account, "--limit", "1", "--page", first["nextPageToken"])
    assert [item["run"]["id"] for page in (first, rest) for item in page["runs"]] == [queued, running]
    assert rest["nextPageToken"] == ""
    printed = await ops.run("runs", "list", "--account", account, "--status", "queued")
    assert queued in printed and "session-busy" in printed and running not in printed

    printed = await ops.run("runs", "show", queued)
    assert f"waits     session-busy: its session is busy, run {running}" in printed
    assert session in printed and account in printed
    depths = await ops.json("runs", "queue")
    mine = {(d["background"], d["status"]): d["runs"] for d in depths["accounts"] if d["account"] == account}
    assert mine == {(False, "running"): 1, (True, "queued"): 1}
    assert account in await ops.run("runs", "queue", "--accounts", "1000")

    gate.set()
    await asyncio.gather(*turns)
    await owner.at_rest(session)
    assert "status    succeeded" in await ops.run("runs", "show", queued)


async def test_an_operator_cancels_and_the_session_takes_the_next_message(world: World, ops: Ops) -> None:
    gate = asyncio.Event()
    owner, session, turns, running, queued = await busy(world, gate)
    assert await ops.run("runs", "cancel", queued) == "canceled 1, being stopped by their workers 0\n"
    assert await ops.run("runs", "cancel", running) == "canceled 0, being stopped by their workers 1\n"
    await owner.at_rest(session)
    await asyncio.wait(turns)
    assert [run.status for run in await owner.runs(session)] == ["canceled", "canceled"]
    assert await ops.run("runs", "cancel", running) == "nothing was live\n"
    assert "Run has ended: canceled" in await ops.run("runs", "requeue", running, code=1)
    noted = (await ops.run("audit", "list", "--runs", "--account", owner.client.account)).splitlines()
    assert [
        f"run.cancel  {run}" in line and line.endswith("by - via ops")
        for run, line in zip((running, running, queued), noted, strict=True)
    ] == [True, True, True]
    assert "Choose one" in await ops.run("audit", "list", "--runs", "--members", code=1)
    gate.set()
    await owner.client.message(session, "three")
    assert (await owner.runs(session))[0].status == "succeeded"


async def test_a_drained_worker_takes_nothing_until_it_may_again(world: World, ops: Ops) -> None:
    owner = await world.owner()
    session = await owner.session()
    worker = (await ops.worker())["id"]
    assert "claims no more" in await ops.run("workers", "drain", worker)
    try:
        # It learns of it with its next heartbeat; until then it may take one more.
        before = (await ops.worker())["seenAt"]

        async def heard() -> bool:
            return (await ops.worker())["seenAt"] > before

        await until(heard, what="a heartbeat")
        assert "draining" in await ops.run("workers", "list")
        turn = asyncio.create_task(owner.client.message(session, "hi"))

        async def waiting() -> Any:
            return (await ops.json("runs", "list", "--account", owner.client.account))["runs"]

        [run] = await until(waiting, what="the run")
        assert run["waiting"]["reason"] == "no-worker"
    finally:
        await ops.run("workers", "drain", worker, "--resume")
    assert (await turn).assistant_event_id


async def test_what_is_not_there(ops: Ops, tmp_path: Any) -> None:
    for words in (["runs", "show", NOWHERE], ["runs", "requeue", NOWHERE], ["runs", "cancel", NOWHERE]):
        assert "Run not found" in await ops.run(*words, code=1)
    assert "Worker not found" in await ops.run("workers", "drain", "nobody", code=1)
    assert "Unknown status: 'gone'" in await ops.run("runs", "list", "--status", "gone", code=1)
    result = await asyncio.to_thread(CliRunner().invoke, app, ["runs", "queue", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1 and "No server runs from" in result.output
