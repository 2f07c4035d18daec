"""Signing identities and delegated signers."""

import asyncio
import os
import time
from typing import Any

import pytest

from libs import wire
from libs.errors import SeedError
from tests.secrets.world import Client, World

pytestmark = pytest.mark.asyncio(loop_scope="session")
MISMATCH = "Client request ID payload mismatch"


async def imported(c: Client, seed: bytes, **fields: Any) -> Any:
    return (await c("ImportSigningIdentity", seed=seed, **fields)).identity


async def listed(c: Client, **fields: Any) -> list[Any]:
    return list((await c("ListSigningIdentities", **fields)).identities)


async def test_a_key_is_imported_and_never_shown(world: World) -> None:
    c, seed = world.account(), os.urandom(32)
    key = wire.Key(seed)
    i = await imported(c, seed, label=" Bot ")
    assert (i.account_id, i.label, i.name, i.server_url, i.icon) == (key.id, "Bot", f"hm-account-{key.id[:16]}", "", "")
    assert i.created_at == i.updated_at and seed not in i.SerializeToString()
    assert await listed(c) == [i]
    taken = f"This account key is already on the server ({key.id})"
    await c.fails(409, taken, "ImportSigningIdentity", seed=seed, label="Again")
    await c.fails(409, taken, "ImportSigningIdentity", seed=seed, client_request_id="fresh")
    assert (await imported(world.account(), seed)).label == ""
    dump = await world.sql("select s::text as row from secrets s where account = $1", c.id)
    assert seed.hex() not in dump[0]["row"]
    assert (await c("DeleteSigningIdentity", name=f" {i.name} ")).name == i.name
    assert await listed(c) == []
    await c.fails(404, "Signing identity not found", "DeleteSigningIdentity", name=i.name)
    await imported(c, seed, client_request_id="fresh")


async def test_rules(world: World) -> None:
    c, seed = world.account(), os.urandom(32)
    for bad in ({}, {"seed": b""}, {"seed": bytes(31)}, {"seed": bytes(33)}):
        await c.fails(400, "Key seed must be exactly 32 bytes", "ImportSigningIdentity", label="", **bad)
    await c.fails(400, "Signing identity label is required", "ImportSigningIdentity", seed=seed, label=" ")
    await c.fails(400, "Signing identity label is too large", "ImportSigningIdentity", seed=seed, label="x" * 257)
    await c.fails(400, "Client request ID is required", "ImportSigningIdentity", seed=b"", client_request_id="")
    long_id = {"seed": seed, "client_request_id": "é" * 128 + "x"}
    await c.fails(400, "Client request ID is too large", "ImportSigningIdentity", **long_id)
    await c.fails(400, "Signing key is required", "DeleteSigningIdentity", name="")
    await c.secret("plain", b"")
    await c.fails(404, "Signing identity not found", "DeleteSigningIdentity", name="plain")
    assert await listed(c) == []
    await imported(c, seed, client_request_id="é" * 128)


async def test_the_same_request_acts_once(world: World) -> None:
    c, seed = world.account(), os.urandom(32)
    first = await imported(c, seed, label="L", client_request_id="r")
    for same in ("r", " r\n"):
        assert await imported(c, seed, label="L", client_request_id=same) == first
    for other in ({"seed": os.urandom(32), "label": "L"}, {"seed": seed, "label": "M"}, {"seed": seed}, {"seed": b""}):
        await c.fails(409, MISMATCH, "ImportSigningIdentity", client_request_id="r", **other)
    assert await listed(c) == [first]
    assert await imported(world.account(), seed, label="L", client_request_id="r") != first
    kept = await world.sql("select request_digest || response as kept from client_requests where account = $1", c.id)
    assert len(kept) == 1 and seed not in kept[0]["kept"]


async def test_equal_requests_at_once_get_one_answer(world: World) -> None:
    c, seed = world.account(), os.urandom(32)
    got = await asyncio.gather(*[imported(c, seed, client_request_id="r") for _ in range(8)])
    assert all(i == got[0] for i in got) and await listed(c) == [got[0]]


async def test_one_key_at_once_under_different_ids_is_stored_once(world: World) -> None:
    c, seed = world.account(), os.urandom(32)
    calls = [imported(c, seed, client_request_id=str(n)) for n in range(6)]
    got = await asyncio.gather(*calls, return_exceptions=True)
    stored = [g for g in got if not isinstance(g, BaseException)]
    assert len(stored) == 1 and await listed(c) == stored
    assert {g.status for g in got if isinstance(g, SeedError)} == {409}


async def test_the_newest_comes_first(world: World) -> None:
    c = world.account()
    made = [await imported(c, os.urandom(32)) for _ in range(3)]
    got = await listed(c)
    assert [i.created_at for i in got] == sorted((i.created_at for i in made), reverse=True)
    assert {i.id for i in got} == {i.id for i in made}


async def test_others_see_only_what_the_agent_is_granted(world: World) -> None:
    owner, reader, stranger = (world.account() for _ in range(3))
    agent = world.agent(owner, reader=reader)
    granted, private = [await imported(owner, os.urandom(32)) for _ in range(2)]
    await imported(reader, os.urandom(32))
    definition = world.sessions.agents[agent].definition
    assert await listed(reader, agent_id=agent) == []
    definition["signingKey"] = private.name
    assert await listed(reader, agent_id=agent) == [private]
    definition["signingKeys"] = [granted.name, "gone"]
    assert await listed(reader, agent_id=agent) == [granted]
    assert {i.id for i in await listed(owner, agent_id=agent)} == {granted.id, private.id}
    await stranger.fails(404, "Agent not found", "ListSigningIdentities", agent_id=agent)


async def test_a_delegate_is_registered_by_its_capability(world: World) -> None:
    issuer, delegate, edge = wire.Key.generate(), wire.Key.generate(), world.client("edge")
    own = world.client("edge", delegate.id)

    async def may(account: str, signer: str) -> bool:
        return (await edge("CheckSigner", account_id=account, signer_id=signer)).authorized

    assert not await may(issuer.id, delegate.id)
    for role in ("AGENT", "WRITER", "AGENT"):
        proof = wire.sign_capability(issuer, delegate.principal, ts=time.time() * 1000, role=role)
        got = await own("RegisterSigner", capability=proof)
        assert (got.account_id, got.signer_id) == (issuer.id, delegate.id)
        assert await may(issuer.id, delegate.id)
    assert not await may(delegate.id, issuer.id) and await may(delegate.id, delegate.id)
    rows = await world.sql("select role, capability from account_authorizations where account = $1", issuer.id)
    assert [(r["role"], r["capability"]) for r in rows] == [("AGENT", proof)]
    await world.sql("update account_authorizations set role = 'OWNER' where account = $1", issuer.id)
    assert await may(issuer.id, delegate.id)
    await world.sql("update account_authorizations set role = 'READER' where account = $1", issuer.id)
    assert not await may(issuer.id, delegate.id)
    await world.sql("delete from account_authorizations where account = $1", issuer.id)
    assert not await may(issuer.id, delegate.id)
    assert not await may(issuer.id + "\0", delegate.id)


async def test_faulty_capabilities(world: World) -> None:
    issuer, delegate = wire.Key.generate(), wire.Key.generate()
    own, other = world.client("edge", delegate.id), world.account()
    good = wire.sign_capability(issuer, delegate.principal, ts=1)
    await own.fails(400, "Invalid capability bytes", "RegisterSigner")
    await own.fails(400, "Invalid capability bytes", "RegisterSigner", capability=b"")
    huge = wire.sign_capability(issuer, delegate.principal, ts=1, label="x" * 70_000)
    await own.fails(400, "Invalid capability bytes", "RegisterSigner", capability=huge)
    await own.fails(400, "Capability is not valid CBOR", "RegisterSigner", capability=good + b"\0")
    await other.fails(400, "Capability delegate does not match envelope signer", "RegisterSigner", capability=good)
    self_made = wire.sign_capability(delegate, delegate.principal, ts=1)
    await own.fails(400, "Capability delegates to its own issuer", "RegisterSigner", capability=self_made)
    assert await world.sql("select 1 from account_authorizations where account = $1", issuer.id) == []


async def test_only_the_edge_asks_who_may_sign(world: World) -> None:
    for service in ("sessions", "runs-worker", "runs-api"):
        caller = world.client(service)
        await caller.fails(403, "This service may not make this call", "CheckSigner", account_id="a", signer_id="a")
