"""Integration: the order of starting and stopping, with real stores and stand-ins for the services."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libs.settings.catalog import KNOWN
from libs.stack import Aborted, AlreadyRunning, Stack, StackError, StartError
from libs.stack import stack as module
from libs.stack.plan import plan
from libs.stack.record import read_record

from .conftest import MakeCommand, wait_for


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, stand_in: MakeCommand) -> dict[str, str]:
    """Services are played by stand-ins; the returned dict gives one of them a behaviour by name."""
    behaviour: dict[str, str] = {}

    def plan_stand_ins(*arguments: Any) -> list[Any]:
        planned = []
        for entry in plan(*arguments):
            port = int(entry.command.address.rpartition(":")[2])
            name = entry.command.name
            command = stand_in(name, *filter(None, [behaviour.get(name)]), port=port)
            planned.append(replace(entry, command=replace(command, env=entry.command.env, log=entry.command.log)))
        return planned

    monkeypatch.setattr(module, "plan", plan_stand_ins)
    monkeypatch.setattr(module.Stack, "_prepare_database", lambda self: None)
    return behaviour


def test_it_serves_and_stops_edges_first_then_workers_then_the_rest(
    tmp_path: Path, journal: Path, stand_ins: dict[str, str]
) -> None:
    stack = Stack(tmp_path / "data", edges=2, workers=2)
    with stack:
        record = read_record(stack.data_dir)
        assert record is not None and record["ready"] and record["url"] == stack.url
        assert len(stack.urls) == 2
        names = [process.name for process in stack.processes()]
        assert sorted(names) == sorted(
            [
                *("postgres", "nats", "valkey", "secrets", "sessions", "runs", "memory", "triggers"),
                *("worker", "worker-1", "edge", "edge-1"),
            ]
        )
        assert {entry["name"]: entry["pid"] for entry in record["processes"]} == {
            process.name: process.pid for process in stack.processes()
        }
        with pytest.raises(AlreadyRunning, match=stack.url):
            Stack(stack.data_dir).start()
        pid = stack.process("edge", 1).pid
        stack.process("edge", 1).restart()
        assert stack.process("edge", 1).pid != pid
        # The record follows.
        assert stack.process("edge", 1).pid in [
            entry["pid"] for entry in json.loads((stack.data_dir / "stack.json").read_text())["processes"]
        ]
        journal.write_text("")
    stops = [line.removeprefix("stop ") for line in journal.read_text().splitlines()]
    assert set(stops[:2]) == {"edge", "edge-1"}
    assert set(stops[2:5]) == {"worker", "worker-1", "triggers"}
    assert set(stops[5:]) == {"sessions", "secrets", "runs", "memory"}
    assert read_record(stack.data_dir) is None
    assert [process.name for process in stack.processes() if process.pid is not None] == []


async def test_it_starts_again_where_it_was_also_from_async_code(tmp_path: Path, stand_ins: dict[str, str]) -> None:
    stack = Stack(tmp_path / "data")
    async with stack:
        url, database_url = stack.url, stack.stores.database_url
    async with stack:
        assert (stack.url, stack.stores.database_url) == (url, database_url)


def test_a_service_that_keeps_dying_fails_the_start_and_leaves_nothing(
    tmp_path: Path, stand_ins: dict[str, str]
) -> None:
    stand_ins["runs"] = "die"
    stack = Stack(tmp_path / "data")
    with pytest.raises(StartError) as failure:
        stack.start()
    assert failure.value.name == "runs"
    assert "I cannot work like this" in str(failure.value)
    assert [process.name for process in stack.processes() if process.pid is not None] == []
    assert read_record(stack.data_dir) is None
    del stand_ins["runs"]
    with Stack(stack.data_dir):
        pass


async def test_a_start_can_be_given_up(tmp_path: Path, stand_ins: dict[str, str]) -> None:
    stack = Stack(tmp_path / "data", on_step=lambda _: None)
    starting = asyncio.create_task(asyncio.to_thread(stack.start))
    await asyncio.to_thread(wait_for, lambda: (stack.data_dir / "stack.json").exists())
    stack.abort()
    with pytest.raises(Aborted):
        await starting
    assert [process.name for process in stack.processes() if process.pid is not None] == []


async def test_a_canceled_start_leaves_nothing(tmp_path: Path, stand_ins: dict[str, str]) -> None:
    stack = Stack(tmp_path / "data")
    entering = asyncio.create_task(stack.__aenter__())
    await asyncio.to_thread(wait_for, lambda: (stack.data_dir / "stack.json").exists())
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert [process.name for process in stack.processes() if process.pid is not None] == []
    with stack:
        pass


def test_a_taken_port_is_named(tmp_path: Path, stand_ins: dict[str, str]) -> None:
    with Stack(tmp_path / "one") as first:
        taken = int(first.url.rpartition(":")[2])
        with pytest.raises(StackError, match=f"Port {taken} .*SEED_AGENTS_HTTP_PORT"):
            Stack(tmp_path / "two", http_port=taken).start()


def test_each_child_gets_what_it_needs_and_no_more(tmp_path: Path, stand_ins: dict[str, str]) -> None:
    with Stack(tmp_path / "data", env={"SEED_AGENTS_LOG_LEVEL": "debug", "SEED_AGENTS_URL": "http://x"}) as stack:
        env = {name: stack.process(name).command.env for name in ("edge", "sessions", "secrets", "runs", "worker")}
        assert "SEED_AGENTS_DATABASE_URL" not in env["edge"]
        assert "SEED_AGENTS_URL" not in env["edge"]
        assert env["worker"]["SEED_AGENTS_DATABASE_URL"].startswith("postgresql://seed_runs:")
        assert env["sessions"]["SEED_AGENTS_DATABASE_URL"].startswith("postgresql://seed_sessions:")
        assert [name for name in env if "SEED_AGENTS_SECRETS_KEYRING_FILE" in env[name]] == ["secrets"]
        keyring = json.loads(Path(env["secrets"]["SEED_AGENTS_SECRETS_KEYRING_FILE"]).read_text())
        assert keyring["primary"] in keyring["keys"]
        assert len({env[name]["SEED_AGENTS_INTERNAL_KEY"] for name in env}) == 1
        assert {env[name]["SEED_AGENTS_LOG_LEVEL"] for name in env} == {"debug"}
        assert env["edge"]["SEED_AGENTS_RUNS_ADDR"] == stack.process("runs").address == stack.addresses["runs"]
        assert stack.process("runs").command.env["SEED_AGENTS_GRPC_PORT"] in stack.process("runs").address
        assert {env[name]["SEED_AGENTS_ALLOW_PRIVATE_PROVIDERS"] for name in env} == {"true"}
        given = {name for name in os.environ if name.startswith("SEED_AGENTS_")}
        for name in env:
            assert {variable for variable in env[name] if variable.startswith("SEED_AGENTS_")} - given <= KNOWN


def test_given_real_servers_it_starts_none_of_its_own(tmp_path: Path, stand_ins: dict[str, str]) -> None:
    with Stack(tmp_path / "one") as real:
        urls = {
            "SEED_AGENTS_DATABASE_URL": real.stores.database_url,
            "SEED_AGENTS_NATS_URL": real.stores.nats_url,
            "SEED_AGENTS_REDIS_URL": real.stores.redis_url,
        }
        with Stack(tmp_path / "two", env=urls) as guest:
            assert list(guest.stores) == []
            env = guest.process("sessions").command.env
            assert env["SEED_AGENTS_NATS_URL"] == real.stores.nats_url
            assert env["SEED_AGENTS_REDIS_URL"] == real.stores.redis_url
            assert real.stores.postgres is not None
            role, _, server = env["SEED_AGENTS_DATABASE_URL"].partition("@")
            assert role.startswith("postgresql://seed_sessions:")
            assert server == f"{real.stores.postgres.address}/seed"
            assert guest.url != real.url


def test_the_commands_are_those_of_the_services(tmp_path: Path) -> None:
    from libs.stack.keys import Keys
    from libs.stack.plan import places
    from libs.stack.stores import Stores

    where = places({"worker": 2})
    keys = Keys(tmp_path)
    stores = Stores(tmp_path, keys, tmp_path)
    planned = plan(where, range(7001, 7001 + len(where)), {}, tmp_path, keys, stores)
    assert [(entry.command.name, list(entry.command.argv[1:])) for entry in planned] == [
        ("secrets", ["-P", "-m", "services.secrets"]),
        ("sessions", ["-P", "-m", "services.sessions"]),
        ("memory", ["-P", "-m", "services.memory"]),
        ("runs", ["-P", "-m", "services.runs", "api"]),
        ("worker", ["-P", "-m", "services.runs", "worker"]),
        ("worker-1", ["-P", "-m", "services.runs", "worker"]),
        ("triggers", ["-P", "-m", "services.triggers", "all"]),
        ("edge", ["-P", "-m", "services.edge"]),
    ]
    assert {entry.command.argv[0] for entry in planned} == {sys.executable}
