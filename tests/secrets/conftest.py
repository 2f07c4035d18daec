"""The secrets service on a real PostgreSQL and NATS, called over real gRPC; sessions is a fake."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from libs.settings import load
from services.secrets.server import serve
from services.secrets.settings import SecretsSettings
from tests.secrets.fakes import FakeModelsServer, FakeSessions
from tests.secrets.world import INTERNAL_KEY, World
from tests.support.database import database_of
from tests.support.hypermedia import FakeHypermediaServer

RING = {"primary": "k2", "keys": {k: base64.b64encode(os.urandom(32)).decode() for k in ("k1", "k2")}}


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of a PostgreSQL with the secrets schema, and of a NATS."""
    folder = tmp_path_factory.mktemp("secrets-stores")
    with database_of("secrets", folder, redis_url="redis://unused") as (url, stores):
        yield {"database": url, "nats": stores.nats_url}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(stores: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The running service and what stands around it."""
    ring = tmp_path_factory.mktemp("ring") / "ring.json"
    ring.write_text(json.dumps(RING))
    sessions, vendor = FakeSessions(INTERNAL_KEY), FakeModelsServer()
    await sessions.start()
    await vendor.start()
    hypermedia = FakeHypermediaServer()
    await hypermedia.start()
    vendors = {kind: f"{vendor.root}/{kind}" for kind in ("openai", "anthropic", "google", "deepseek")}
    settings = load(
        SecretsSettings,
        {
            "SEED_AGENTS_DATABASE_URL": stores["database"],
            "SEED_AGENTS_NATS_URL": stores["nats"],
            "SEED_AGENTS_INTERNAL_KEY": INTERNAL_KEY,
            "SEED_AGENTS_SESSIONS_ADDR": f"127.0.0.1:{sessions.port}",
            "SEED_AGENTS_SECRETS_KEYRING_FILE": str(ring),
            "SEED_AGENTS_HM_SERVER_URL": hypermedia.url + "/",
            "SEED_AGENTS_ALLOWED_PROVIDER_HOSTS": "127.0.0.1",
            "SEED_AGENTS_PROVIDER_VENDOR_URLS": json.dumps(vendors),
        },
    )
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    served = asyncio.create_task(serve(settings, stop, port.set_result))
    await asyncio.wait([served, port], timeout=30, return_when=asyncio.FIRST_COMPLETED)
    if served.done():
        served.result()
    world = World(
        await asyncio.wait_for(port, 1), sessions, vendor, stores["database"], stores["nats"], ring, hypermedia
    )
    try:
        yield world
    finally:
        await world.close()
        stop.set()
        await asyncio.wait_for(served, 10)
        await hypermedia.stop()
        await vendor.stop()
        await sessions.stop()
