"""Integration: the real embedded stores, in a data directory of their own."""

import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
import redis.asyncio as redis

from libs.stack import ManagedProcess, StackError, Stores
from libs.stack.keys import Keys
from libs.stack.layout import DATABASE_SERVICES, role_of, role_url
from libs.stack.prepare import ensure_roles

from .conftest import wait_for


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def stores(data_dir: Path) -> Iterator[Stores]:
    logs = data_dir / "logs"
    logs.mkdir()
    embedded = Stores(data_dir, Keys(data_dir), logs)
    embedded.start()
    yield embedded
    embedded.stop()


@pytest.fixture
async def passwords(stores: Stores, data_dir: Path) -> dict[str, str]:
    made = Keys(data_dir).role_passwords(DATABASE_SERVICES)
    await ensure_roles(stores.database_url, made, DATABASE_SERVICES)
    return made


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def as_service(stores: Stores, passwords: dict[str, str], service: str) -> AsyncIterator[Any]:
    async with connected(role_url(stores.database_url, role_of(service), passwords[role_of(service)])) as connection:
        yield connection


def running(store: ManagedProcess | None) -> ManagedProcess:
    assert store is not None
    return store


async def test_postgres_is_durable_and_sorts_by_bytes(stores: Stores, passwords: dict[str, str]) -> None:
    async with connected(stores.database_url) as admin:
        shown = {name: await admin.fetchval(f"SHOW {name}") for name in ("fsync", "synchronous_commit", "jit")}
        assert shown == {"fsync": "on", "synchronous_commit": "on", "jit": "off"}
        assert await admin.fetchval("SELECT array(SELECT x FROM unnest(array['b','B','a','A']) x ORDER BY x)") == [
            "A",
            "B",
            "a",
            "b",
        ]


async def test_every_service_has_its_own_schema(stores: Stores, passwords: dict[str, str]) -> None:
    for service in DATABASE_SERVICES:
        async with as_service(stores, passwords, service) as connection:
            assert await connection.fetchval("SELECT current_schema()") == service
            await connection.execute("CREATE TABLE mine (id text)")
            assert await connection.fetchval("SELECT 'mine'::regclass::oid = $1::regclass::oid", f"{service}.mine")
            await connection.execute("DROP TABLE mine")


@pytest.mark.parametrize(
    "breach",
    [
        "SELECT * FROM sessions.log",
        "INSERT INTO sessions.log VALUES ('x')",
        "CREATE TABLE sessions.more (id text)",
        "CREATE TABLE public.more (id text)",
        "DROP SCHEMA sessions CASCADE",
        "CREATE SCHEMA more",
        "SET ROLE seed_sessions",
        "ALTER ROLE seed_sessions PASSWORD 'x'",
        "CREATE ROLE more",
    ],
)
async def test_a_breach_fails(stores: Stores, passwords: dict[str, str], breach: str) -> None:
    async with as_service(stores, passwords, "sessions") as owner:
        await owner.execute("CREATE TABLE IF NOT EXISTS log (id text)")
    async with as_service(stores, passwords, "runs") as other:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await other.execute(breach)


async def test_roles_are_made_once_and_follow_this_data_directory(
    stores: Stores, passwords: dict[str, str], tmp_path: Path
) -> None:
    assert await ensure_roles(stores.database_url, passwords, DATABASE_SERVICES) == []
    foreign = Keys(tmp_path).role_passwords(DATABASE_SERVICES)
    done = await ensure_roles(stores.database_url, foreign, ["runs"])
    assert len(done) == 1 and done[0].startswith("gave role seed_runs the password")
    async with as_service(stores, foreign, "runs") as connection:
        assert await connection.fetchval("SELECT current_user") == "seed_runs"


async def test_a_creator_of_roles_who_is_no_superuser_will_do(stores: Stores, tmp_path: Path) -> None:
    async with connected(stores.database_url) as admin:
        await admin.execute("CREATE ROLE operator LOGIN CREATEROLE PASSWORD 'pw'")
        await admin.execute("CREATE DATABASE other OWNER operator")
    url = role_url(stores.database_url, "operator", "pw").replace("/seed", "/other")
    made = Keys(tmp_path).role_passwords(["blue"])
    assert await ensure_roles(url, made, ["blue"]) == ["created role seed_blue", "created schema blue"]
    async with connected(role_url(url, "seed_blue", made["seed_blue"])) as connection:
        await connection.execute("CREATE TABLE mine (id text)")
        assert await connection.fetchval("SELECT current_schema()") == "blue"


async def test_a_user_who_cannot_create_roles_is_refused(stores: Stores, passwords: dict[str, str]) -> None:
    url = role_url(stores.database_url, "seed_secrets", passwords["seed_secrets"])
    with pytest.raises(StackError, match="may create roles"):
        await ensure_roles(url, passwords, DATABASE_SERVICES)


async def test_nats_wants_its_password_and_has_jetstream(stores: Stores) -> None:
    client = await nats.connect(stores.nats_url)
    info = await client.jetstream().account_info()
    assert info.limits is not None
    await client.close()
    with pytest.raises(nats.errors.Error):  # pyright: ignore[reportAttributeAccessIssue]
        await nats.connect(
            f"nats://seed:wrong@{running(stores.nats).address}", allow_reconnect=False, max_reconnect_attempts=0
        )


async def test_valkey_wants_its_password(stores: Stores) -> None:
    async with redis.from_url(stores.redis_url) as client:
        assert await client.ping()
    async with redis.from_url(f"redis://{running(stores.valkey).address}/0") as client:
        with pytest.raises(redis.AuthenticationError):
            await client.ping()


async def test_a_killed_store_comes_back_at_its_address_with_its_rows(
    stores: Stores, passwords: dict[str, str]
) -> None:
    postgres = running(stores.postgres)
    async with as_service(stores, passwords, "secrets") as connection:
        await connection.execute("CREATE TABLE kept (id text)")
        await connection.execute("INSERT INTO kept VALUES ('row')")
    starts = postgres.starts
    postgres.crash()
    wait_for(lambda: postgres.starts > starts)
    postgres.wait_ready(20)
    async with as_service(stores, passwords, "secrets") as connection:
        assert await connection.fetchval("SELECT id FROM kept") == "row"
    server = running(stores.nats)
    server.kill()
    assert server.pid is None and server.command.probe is not None and not server.command.probe()
    server.start()
    server.wait_ready(10)
    await (await nats.connect(stores.nats_url)).close()


def test_a_given_url_means_no_embedded_store(tmp_path: Path) -> None:
    given = Stores(tmp_path, Keys(tmp_path), tmp_path, database_url="postgresql://a@b/c", nats_url="nats://d")
    assert given.postgres is None and given.nats is None
    assert [store.name for store in given] == ["valkey"]
    assert (given.database_url, given.nats_url) == ("postgresql://a@b/c", "nats://d")


def test_one_that_cannot_start_takes_the_others_with_it(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("9\n")
    broken = Stores(tmp_path, Keys(tmp_path), tmp_path)
    with pytest.raises(StackError, match="made by PostgreSQL 9, the installed one is"):
        broken.start()
    assert [store.name for store in broken if store.pid is not None] == []


def test_secrets_are_files_of_their_owner_only(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keyring = keys.keyring_file()
    assert len(keys.internal_key()) >= 32
    assert keys.internal_key() == Keys(tmp_path).internal_key()
    assert keyring.read_text() == Keys(tmp_path).keyring_file().read_text()
    for path in (tmp_path / "keys").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
