"""The sessions service on a real PostgreSQL and NATS, called over real gRPC; its neighbours are fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from libs.events import Bus
from libs.settings import load
from services.sessions.server import Service
from services.sessions.settings import SessionsSettings
from tests.sessions.fakes import Neighbours
from tests.sessions.world import INTERNAL_KEY, World
from tests.support.database import database_of


@pytest.fixture(scope="session")
def sessions_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of a PostgreSQL with the sessions schema, and of a NATS."""
    folder = tmp_path_factory.mktemp("sessions-stores")
    with database_of("sessions", folder, redis_url="redis://unused") as (url, stores):
        yield {"database": url, "nats": stores.nats_url}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(sessions_stores: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The running service and what stands around it."""
    blobs = tmp_path_factory.mktemp("sessions-blobs")
    neighbours = Neighbours(INTERNAL_KEY)
    await neighbours.start()
    settings = load(
        SessionsSettings,
        {
            "SEED_AGENTS_DATABASE_URL": sessions_stores["database"],
            "SEED_AGENTS_NATS_URL": sessions_stores["nats"],
            "SEED_AGENTS_INTERNAL_KEY": INTERNAL_KEY,
            **neighbours.addresses,
            "SEED_AGENTS_TURN_SWEEP_MS": "200",
            "SEED_AGENTS_BLOB_URL": str(blobs),
        },
    )
    service = Service(settings)
    await service.start()
    bus = Bus(sessions_stores["nats"], "tests")
    await bus.start()
    world = World(service.port, bus, neighbours, sessions_stores["database"], blobs)
    try:
        yield world
    finally:
        await world.close()
        await bus.close()
        await service.stop()
        await neighbours.stop()
