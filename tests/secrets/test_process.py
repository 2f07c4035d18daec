"""The process itself: starting, stopping, refusing to start; and its schema."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import grpc
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from grpc_health.v1 import health_pb2, health_pb2_grpc
from sqlalchemy.ext.asyncio import create_async_engine

from libs.stack.ports import free_ports
from services.secrets.store.tables import metadata
from tests.secrets.conftest import RING
from tests.secrets.world import INTERNAL_KEY

ROOT = Path(__file__).parents[2]


async def start(stores: dict[str, str], **settings: str) -> asyncio.subprocess.Process:
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "gen"))),
        "SEED_AGENTS_DATABASE_URL": stores["database"],
        "SEED_AGENTS_NATS_URL": stores["nats"],
        "SEED_AGENTS_INTERNAL_KEY": INTERNAL_KEY,
        **{f"SEED_AGENTS_{name}": value for name, value in settings.items()},
    }
    command = (sys.executable, "-m", "services.secrets")
    return await asyncio.create_subprocess_exec(*command, env=env, cwd=ROOT, stderr=asyncio.subprocess.PIPE)


async def test_it_starts_and_stops_in_order(stores: dict[str, str], tmp_path: Path) -> None:
    ring = tmp_path / "ring.json"
    ring.write_text(str(RING).replace("'", '"'))
    (port,) = free_ports(1)
    process = await start(stores, SECRETS_KEYRING_FILE=str(ring), GRPC_PORT=str(port))
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service="seed.secrets.v1.ProvidersService")
            answer = await health.Check(request, wait_for_ready=True, timeout=20)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), 10)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0 and b"stopped" in log
    assert all(key.encode() not in log for key in RING["keys"].values())


async def test_it_does_not_start_without_a_usable_key_ring(stores: dict[str, str]) -> None:
    for settings in ({"SECRETS_KEYRING": '{"primary": "a", "keys": {"a": "c2hvcnQ="}}'}, {}):
        process = await start(stores, **settings)
        _, log = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 2 and b"key" in log and b"c2hvcnQ=" not in log and b"Traceback" not in log


async def test_the_migrations_make_the_declared_tables(stores: dict[str, str]) -> None:
    engine = create_async_engine(stores["database"].replace("postgresql://", "postgresql+asyncpg://", 1))
    async with engine.connect() as connection:
        differences = await connection.run_sync(lambda c: compare_metadata(MigrationContext.configure(c), metadata))
    await engine.dispose()
    assert differences == []
