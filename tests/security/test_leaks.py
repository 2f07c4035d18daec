"""Nothing secret lies anywhere in clear, and what people write lies only where conversations are kept."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from libs.stack import Stack
from libs.stack.keys import Keys
from libs.stack.layout import DATABASE_SERVICES, SERVICE_PROCESSES
from libs.stack.scripted import ScriptedProvider
from tests.security import places
from tests.security.markers import Marker, found_in
from tests.security.scenario import Handed, Scenario, openai
from tests.support.kit import World, until


@dataclass
class Left:
    """What a day left: `places` when it was over, `said` on the bus meanwhile, and the keys of the house itself."""

    places: places.Places
    said: places.Places
    handed: Handed
    house: list[Marker]
    statuses: list[int]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    """The scenario, played once."""
    yield asyncio.run(_play(tmp_path_factory))


async def _play(folders: pytest.TempPathFactory) -> Left:
    handed = Handed()
    with openai(handed) as vendor:
        async with ScriptedProvider() as provider:
            first = _metrics_ports()
            env = {
                "SEED_AGENTS_LOG_LEVEL": "debug",
                "SEED_AGENTS_METRICS_PORT": str(first),
                "SEED_AGENTS_SESSION_TITLE_GENERATION": "true",
                "SEED_AGENTS_SUBSCRIPTION_AUTH": "true",
                "SEED_AGENTS_OAUTH_TOKEN_URL": f"{vendor}/token",
                "SEED_AGENTS_CHATGPT_URL": f"{vendor}/codex",
                "SEED_AGENTS_PROVIDER_VENDOR_URLS": json.dumps({"google": provider.url}),
                "SEED_AGENTS_RATE_LIMITS": "false",
            }
            async with Stack(folders.mktemp("leaks") / "data", env=env) as stack:
                async with World(stack.urls) as world, places.bus(stack) as said:
                    scenario = Scenario(stack, world, provider, handed)
                    await scenario.play()
                    await until(lambda: places.outboxes_empty(stack), 60.0, "all news passed on")
                shown = await places.metrics(range(first, first + len(SERVICE_PROCESSES)))
                held = await places.valkey(stack) | await places.database(stack) | shown
                house = _house(stack)
            # The stores have written everything down now.
            held |= places.logs(stack) | places.jetstream(stack)
            return Left(held, said, handed, house, scenario.statuses)


def _metrics_ports() -> int:
    """The first of some ports in a row that are free, below those that the system gives away."""
    count = len(SERVICE_PROCESSES)
    for first in range(20_000, 30_000, count):
        with ExitStack() as held:
            try:
                for port in range(first, first + len(SERVICE_PROCESSES)):
                    listener = held.enter_context(socket.socket())
                    listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no ports in a row are free")


def _house(stack: Stack) -> list[Marker]:
    keys = Keys(stack.data_dir)
    ring = json.loads(keys.keyring_file().read_text())
    named = {
        "internal key": stack.internal_key,
        "database password": keys.superuser_password(),
        "nats password": keys.nats_password(),
        "valkey password": keys.valkey_password(),
        **{f"password of {role}": word for role, word in keys.role_passwords(DATABASE_SERVICES).items()},
        **{f"key {name} of the ring": value for name, value in ring["keys"].items()},
    }
    return [Marker(name, value.encode()) for name, value in named.items()]


def _found(held: places.Places, markers: list[Marker]) -> dict[str, set[str]]:
    return {place: names for place, data in held.items() if (names := found_in(data, markers))}


def test_no_key_token_seed_or_secret_lies_anywhere(left: Left) -> None:
    assert not _found(left.places | left.said, left.handed.secrets + left.house)


def test_what_people_write_lies_only_where_conversations_are_kept(left: Left) -> None:
    found = _found(left.places, left.handed.texts)
    assert set(found) <= places.KEPT, {place: found[place] for place in found.keys() - places.KEPT}
    assert "message" in found["table sessions.session_events.payload"]


def test_what_was_deleted_is_gone(left: Left) -> None:
    assert not _found(left.places, [left.handed.deleted])


def test_the_scenario_met_failures_of_every_sort(left: Left) -> None:
    assert {400, 401, 404, 409, 415, 500, 502, 503} <= set(left.statuses)


def test_every_place_was_looked_at(left: Left) -> None:
    kinds = {place.split()[0] for place in left.places}
    assert kinds >= {"log", "metrics", "valkey", "table"}
    assert {f"log {name}.log" for name in ("edge", "sessions", "secrets", "runs", "worker", "postgres")} <= set(
        left.places
    )
    assert any(place.startswith("bus seed.v1.") for place in left.said)
