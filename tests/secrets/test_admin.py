"""What operators may do: rotate keys, list and revoke authorizations, read the audit."""

import asyncio
import base64
import json
import os
import time
from typing import Any

import asyncpg
import pytest

from libs import wire
from services.secrets.domain.keyring import KeyRing
from services.secrets.domain.vault import Vault, WrappedKey
from tests.secrets.conftest import RING
from tests.secrets.world import Client, World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def key_of(worker: Client, account: str) -> str:
    return (await worker("ResolveModelProvider", account=account, provider="p")).api_key


async def rotated(ops: Client, batch: int = 3) -> Any:
    answer = await ops("RewrapDataKeys", batch=batch)
    while answer.next_page_token:
        assert answer.rewrapped + answer.failed == batch
        answer = await ops("RewrapDataKeys", batch=batch, page_token=answer.next_page_token, primary=answer.primary)
    return answer


async def test_keys_are_rotated_while_values_are_read(world: World) -> None:
    ops, worker = world.client("ops"), world.client("runs-worker")
    accounts = [world.account() for _ in range(8)]
    for n, c in enumerate(accounts):
        await c.secret("k", f"sk-{n}".encode())
        await c.provider("p", type="openai", secretRefs={"apiKey": "k"})
    broken = world.account()
    await broken.secret("k", b"lost")
    await world.sql("update data_keys set wrapped = 'broken', key_id = 'k2' where account = $1", broken.id)
    before = await world.sql("select account, wrapped from data_keys order by account")
    sealed = await world.sql("select id, sealed from secrets order by id")
    ring = {"primary": "k3", "keys": {**RING["keys"], "k3": base64.b64encode(os.urandom(32)).decode()}}
    done = asyncio.Event()

    async def read() -> int:
        reads = 0
        while not done.is_set() or reads < 8:
            c = reads % len(accounts)
            assert await key_of(worker, accounts[c].id) == f"sk-{c}"
            reads += 1
        return reads

    reading = [asyncio.create_task(read()) for _ in range(2)]
    world.ring.write_text(json.dumps(ring))
    answer = await rotated(ops)
    done.set()
    assert sum(await asyncio.gather(*reading)) >= 16
    assert answer.primary == "k3" and sum(answer.wrapped_by.values()) == len(before)
    after = {r["account"]: r for r in await world.sql("select account, key_id, wrapped from data_keys")}
    assert {after[c.id]["key_id"] for c in accounts} == {"k3"}
    assert {after[broken.id]["key_id"]} == {"k2"} and after[broken.id]["wrapped"] == b"broken"
    assert all(
        after[r["account"]]["wrapped"] != r["wrapped"] for r in before if r["account"] in {c.id for c in accounts}
    )
    assert await world.sql("select id, sealed from secrets order by id") == sealed
    fresh = world.account()
    await fresh.secret("k", b"sk-new")
    assert (await world.sql("select key_id from data_keys where account = $1", fresh.id))[0]["key_id"] == "k3"
    notes = await world.sql("select account, via, subject, detail from audit where action = 'data-keys.rewrap'")
    assert notes and {(n["account"], n["via"], n["subject"]) for n in notes} == {("", "ops", "k3")}

    # A ring without a key that is in use, or none at all, does not replace the one that works.
    for bad in (json.dumps(RING), "not a ring"):
        world.ring.write_text(bad)
        assert (await ops("RewrapDataKeys")).primary == "k3"
        assert await key_of(worker, accounts[0].id) == "sk-0"
    world.ring.write_text(json.dumps(ring))
    text = "The key ring of this replica has k3 as its primary key, not k2"
    await ops.fails(409, text, "RewrapDataKeys", primary="k2", page_token="x")


async def test_a_key_that_another_replica_has_begun_to_use_is_looked_for(world: World) -> None:
    c, worker = world.account(), world.client("runs-worker")
    await c.secret("k", b"sk-late")
    await c.provider("p", type="openai", secretRefs={"apiKey": "k"})
    ring = json.loads(world.ring.read_text())
    ring["keys"]["k4"] = base64.b64encode(os.urandom(32)).decode()
    (row,) = await world.sql("select key_id, wrapped from data_keys where account = $1", c.id)
    other = Vault(KeyRing.parse(json.dumps({**ring, "primary": "k4"})), 1)
    new = await other.rewrap(c.id, WrappedKey(row["key_id"], row["wrapped"]))
    change = "update data_keys set key_id = $2, wrapped = $3 where account = $1"
    await world.sql(change, c.id, new.key_id, new.wrapped)
    world.ring.write_text(json.dumps(ring))
    assert await key_of(worker, c.id) == "sk-late"
    await world.sql(change, c.id, "lost", new.wrapped)
    for _ in range(2):
        await worker.fails(500, "Internal server error", "ResolveModelProvider", account=c.id, provider="p")
    await world.sql(change, c.id, new.key_id, new.wrapped)
    assert await key_of(worker, c.id) == "sk-late"


async def test_authorizations_are_listed_and_revoked(world: World) -> None:
    ops, edge = world.client("ops"), world.client("edge")
    issuer, delegates = wire.Key.generate(), [wire.Key.generate() for _ in range(3)]
    for delegate in delegates:
        proof = wire.sign_capability(issuer, delegate.principal, ts=1)
        await world.client("edge", delegate.id)("RegisterSigner", capability=proof)
    seen: list[str] = []
    token = ""
    for size in (2, 2):
        page = await ops("ListAuthorizations", account=issuer.id, page_size=size, page_token=token)
        seen += [a.signer for a in page.authorizations]
        token = page.next_page_token
    assert seen == sorted(d.id for d in delegates) and token == ""
    assert {a.role for a in (await ops("ListAuthorizations", page_size=1000)).authorizations} == {"AGENT"}

    gone = delegates[0].id
    assert (await edge("CheckSigner", account_id=issuer.id, signer_id=gone)).authorized
    await ops("RevokeAuthorization", account=issuer.id, signer=gone)
    assert not (await edge("CheckSigner", account_id=issuer.id, signer_id=gone)).authorized
    assert (await edge("CheckSigner", account_id=issuer.id, signer_id=delegates[1].id)).authorized
    text = "There is no such authorization"
    await ops.fails(404, text, "RevokeAuthorization", account=issuer.id, signer=gone)
    assert gone not in {a.signer for a in (await ops("ListAuthorizations", account=issuer.id)).authorizations}
    entries = (await ops("ListAudit", account=issuer.id)).entries
    newest = entries[0]
    assert (newest.action, newest.subject, newest.actor, newest.via) == ("authorization.revoke", gone, "", "ops")
    assert {(e.action, e.actor, e.signer) for e in entries[1:]} == {
        ("authorization.register", d.id, d.id) for d in delegates
    }


async def test_who_was_revoked_cannot_register_again_with_what_it_has(world: World) -> None:
    ops, edge = world.client("ops"), world.client("edge")
    issuer, delegate = wire.Key.generate(), wire.Key.generate()
    own, now = world.client("edge", delegate.id), time.time() * 1000
    for made in (1, now):
        await own("RegisterSigner", capability=wire.sign_capability(issuer, delegate.principal, ts=made))
    await ops("RevokeAuthorization", account=issuer.id, signer=delegate.id)
    for made in (1, now):
        proof = wire.sign_capability(issuer, delegate.principal, ts=made)
        await own.fails(403, "This authorization was revoked", "RegisterSigner", capability=proof)
    assert not (await edge("CheckSigner", account_id=issuer.id, signer_id=delegate.id)).authorized
    # The account may change its mind: it signs a new one.
    proof = wire.sign_capability(issuer, delegate.principal, ts=time.time() * 1000 + 1)
    await own("RegisterSigner", capability=proof)
    assert (await edge("CheckSigner", account_id=issuer.id, signer_id=delegate.id)).authorized
    actions = [e.action for e in (await ops("ListAudit", account=issuer.id)).entries]
    assert actions == [f"authorization.{what}" for what in ("register", "revoke", "register", "register")]


async def test_the_audit_tells_who_did_what_and_no_value(world: World) -> None:
    ops, delegate = world.client("ops"), wire.Key.generate()
    c = world.account(delegate)
    await c.secret("k", b"sk-hidden", note="meta-hidden")
    await c.provider("p", type="openai", secretRefs={"apiKey": "k"})
    identity = (await c("ImportSigningIdentity", seed=os.urandom(32), label="label-hidden")).identity
    await c("DeleteSigningIdentity", name=identity.name)
    await c("DeleteModelProvider", name="p")
    await c.fails(404, "Model provider not found", "DeleteModelProvider", name="p")
    page = await ops("ListAudit", account=c.id, page_size=4)
    rest = await ops("ListAudit", account=c.id, page_size=4, page_token=page.next_page_token)
    entries = [*page.entries, *rest.entries]
    assert [(e.action, e.subject, e.detail) for e in reversed(entries)] == [
        ("secret.set", "k", ""),
        ("provider.set", "p", "openai"),
        ("identity.add", identity.name, "imported"),
        ("identity.delete", identity.name, ""),
        ("provider.delete", "p", ""),
        ("secret.delete", "k", "with provider p"),
    ]
    assert {(e.actor, e.signer, e.via) for e in entries} == {(c.id, delegate.id, "edge")}
    assert [e.at for e in entries] == sorted((e.at for e in entries), reverse=True)
    assert b"hidden" not in b"".join(e.SerializeToString() for e in entries)
    assert rest.next_page_token == ""
    await ops.fails(400, "Page token is invalid", "ListAudit", page_token="x")
    for statement in ("update audit set actor = ''", "delete from audit", "truncate audit"):
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await world.sql(statement)


async def test_only_operators_get_in(world: World) -> None:
    methods = ("RewrapDataKeys", "ListAuthorizations", "RevokeAuthorization", "ListAudit")
    for service in ("edge", "sessions", "runs-worker"):
        for method in methods:
            await world.client(service).fails(403, "This service may not make this call", method)
