"""SetSecret, and what is at rest."""

import asyncio
import json

import pytest

from libs import wire
from tests.secrets.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")
B256, B257 = "é" * 128, "é" * 128 + "x"


async def test_a_secret_is_stored_and_not_shown(world: World) -> None:
    c = world.account()
    metadata = {"kind": "api-key", "n": {"x": [1, b"\1"]}}
    s = await c.secret("  key\ufeff ", b"top secret", **metadata)
    assert s.name == "key" and wire.decode(s.metadata) == metadata and s.created_at == s.updated_at
    assert b"top secret" not in s.SerializeToString()


async def test_a_secret_set_again_keeps_its_id_and_is_later(world: World) -> None:
    c = world.account()
    first = await c.secret("k", b"1", a=1)
    second = await c.secret("k", b"2")
    assert (second.id, second.created_at, second.metadata) == (first.id, first.created_at, b"")
    assert second.updated_at > first.updated_at
    assert (await world.account().secret("k", b"3")).id != first.id


async def test_secrets_set_at_once_all_succeed(world: World) -> None:
    c = world.account()
    got = await asyncio.gather(*[c.secret("k", bytes([n])) for n in range(12)])
    assert len({s.id for s in got}) == 1 and len({s.created_at for s in got}) == 1
    assert len({s.updated_at for s in got}) == 12
    assert len(await world.sql("select 1 from data_keys where account = $1", c.id)) == 1


async def test_rules(world: World) -> None:
    c = world.account()
    for name, message in (
        ("", "Secret name is required"),
        ("  ", "Secret name is required"),
        (B257, "Secret name is too large"),
        ("a\0b", "Secret name contains an invalid character"),
    ):
        await c.fails(400, message, "SetSecret", name=name)
    await c.fails(400, "Secret value is required", "SetSecret", name="k", metadata=wire.encode([]))
    too_large = {"name": "k", "value": b"x" * 65537, "metadata": wire.encode([])}
    await c.fails(400, "Secret value is too large", "SetSecret", **too_large)
    await c.fails(400, "Metadata must be an object", "SetSecret", name="k", value=b"", metadata=wire.encode(None))
    large = wire.encode({"x": "y" * 16384})
    await c.fails(400, "Metadata is too large", "SetSecret", name="k", value=b"", metadata=large)
    await c.secret(B256, b"x" * 65536, x=b"\0" * 16376)
    await c.secret("empty", b"")
    await world.client("edge").fails(403, "This call needs an acting account", "SetSecret", name="k", value=b"")


async def test_values_are_sealed_at_rest_with_a_key_of_the_account(world: World) -> None:
    a, b = world.account(), world.account()
    for c in (a, b):
        await c.secret("k", b"the very same value")
    rows = await world.sql(
        "select s.sealed, k.wrapped, k.key_id from secrets s join data_keys k using (account) where account = any($1)",
        [a.id, b.id],
    )
    assert len(rows) == 2 and all(b"very same" not in r["sealed"] for r in rows)
    primary = json.loads(world.ring.read_text())["primary"]
    assert {r["key_id"] for r in rows} == {primary} and len({r["wrapped"] for r in rows}) == 2


async def test_a_value_moved_to_another_row_does_not_open(world: World) -> None:
    worker = world.client("runs-worker")
    for same_account in (True, False):
        a = world.account()
        b = a if same_account else world.account()
        await a.secret("first", b"sk-first")
        await b.secret("second", b"sk-second")
        await b.provider("p", type="openai", secretRefs={"apiKey": "second"})
        assert (await worker("ResolveModelProvider", account=b.id, provider="p")).api_key == "sk-second"
        await world.sql(
            "update secrets set sealed = (select sealed from secrets where account = $1 and name = 'first')"
            " where account = $2 and name = 'second'",
            a.id,
            b.id,
        )
        await worker.fails(500, "Internal server error", "ResolveModelProvider", account=b.id, provider="p")


async def test_a_data_key_moved_to_another_account_does_not_open(world: World) -> None:
    worker, a, b = world.client("runs-worker"), world.account(), world.account()
    await a.secret("k", b"sk-a")
    await b.secret("k", b"sk-b")
    await b.provider("p", type="openai", secretRefs={"apiKey": "k"})
    await world.sql(
        "update data_keys set wrapped = (select wrapped from data_keys where account = $1) where account = $2",
        a.id,
        b.id,
    )
    await worker.fails(500, "Internal server error", "ResolveModelProvider", account=b.id, provider="p")
