"""Signing identities that are made and renamed here: what an HM server is given, and what happens when it fails."""

import asyncio
import os
from typing import Any

import pytest

from libs import signatures, wire
from tests.secrets.world import Client, World, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def created(c: Client, **fields: Any) -> Any:
    return (await c("CreateSigningIdentity", **fields)).identity


async def updated(c: Client, name: str, label: str, **fields: Any) -> Any:
    return (await c("UpdateSigningIdentity", name=name, label=label, **fields)).identity


async def listed(c: Client) -> list[Any]:
    return list((await c("ListSigningIdentities")).identities)


def read(blobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The signed documents among published blobs: each must be named by its bytes and signed by its signer."""
    documents = []
    for blob in blobs:
        assert blob["cid"] == wire.cid_dag_cbor(blob["data"])
        document = wire.decode(blob["data"])
        assert wire.encode(document) == blob["data"]
        assert wire.verify(document["signer"][2:], wire.signed_bytes(document), document["sig"])
        documents.append(document)
    return documents


async def test_a_profile_and_a_home_document_are_published(world: World) -> None:
    world.hypermedia.answer()
    c = world.account()
    i = await created(c, label=" Bot ")
    assert (i.label, i.name, i.server_url, i.icon) == (
        "Bot",
        f"hm-account-{i.account_id[:16]}",
        world.hypermedia.url,
        "",
    )
    assert await listed(c) == [i]
    (blobs,) = world.hypermedia.published
    profile, first, change, ref = read(blobs)
    assert {wire.account_id(d["signer"]) for d in (profile, first, change, ref)} == {i.account_id}
    assert set(profile) == {"type", "signer", "sig", "ts", "name"}
    assert (profile["type"], profile["name"]) == ("Profile", "Bot")
    assert set(first) == {"type", "signer", "sig", "ts"} and (first["type"], first["ts"]) == ("Change", 0)
    links = [wire.Link.parse(blob["cid"]) for blob in blobs]
    assert set(change) == {"type", "signer", "sig", "ts", "body", "genesis", "deps", "depth"}
    assert (change["genesis"], change["deps"], change["depth"]) == (links[1], [links[1]], 1)
    attributes, block, place = change["body"]["ops"]
    assert change["body"]["opCount"] == 3
    assert attributes == {"type": "SetAttributes", "attrs": [{"key": ["name"], "value": "Bot"}]}
    text = "This account is operated by an agent."
    body = {"id": block["block"]["id"], "type": "Paragraph", "text": text, "annotations": []}
    assert block == {"type": "ReplaceBlock", "block": body}
    assert place == {"type": "MoveBlocks", "blocks": [block["block"]["id"]], "parent": ""}
    assert set(ref) == {"type", "signer", "sig", "ts", "genesisBlob", "generation", "heads"}
    assert (ref["genesisBlob"], ref["heads"], ref["generation"]) == (links[1], [links[2]], change["ts"])


async def test_without_a_label_it_is_named_by_its_id(world: World) -> None:
    world.hypermedia.answer()
    i = await created(world.account())
    assert i.label == f"Agent account {i.account_id[:10]}"
    assert read(world.hypermedia.published[0])[0]["name"] == i.label


async def test_the_same_request_makes_one_account(world: World) -> None:
    world.hypermedia.answer()
    c = world.account()
    got = await asyncio.gather(*[created(c, label="L", client_request_id="r") for _ in range(6)])
    assert all(i == got[0] for i in got) and await listed(c) == [got[0]]
    assert await created(c, label="L", client_request_id=" r ") == got[0]
    assert len(world.hypermedia.published) == 1
    mismatch = "Client request ID payload mismatch"
    for other in ({"label": "M"}, {}):
        await c.fails(409, mismatch, "CreateSigningIdentity", client_request_id="r", **other)
    await c("ImportSigningIdentity", seed=os.urandom(32), label="L", client_request_id="r")
    assert len(await listed(c)) == 2


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (500, b"", "HTTP 500"),
        (302, b"", "HTTP 302"),
        (200, b"<html>", "the answer is invalid"),
        (200, b"[]", "the answer is invalid"),
    ],
)
async def test_when_publishing_fails_nothing_is_made_or_changed(
    world: World, status: int, body: bytes, cause: str
) -> None:
    world.hypermedia.answer()
    c, server = world.account(), world.hypermedia.url
    kept = await created(c, label="Kept")
    world.hypermedia.answer(status, body)
    fields = {"label": "New", "client_request_id": "r"}
    await c.fails(502, f"Failed to publish agent account to {server}: {cause}", "CreateSigningIdentity", **fields)
    text = f"Failed to publish agent account profile to {server}: {cause}"
    await c.fails(502, text, "UpdateSigningIdentity", name=kept.name, label="New")
    text = f"Failed to publish agent account icon to {server}: {cause}"
    await c.fails(502, text, "UpdateSigningIdentity", name=kept.name, label="New", icon={"data": b"png"})
    assert await listed(c) == [kept]
    world.hypermedia.answer()
    await created(c, **fields)
    assert [i.label for i in await listed(c)] == ["New", "Kept"]


async def test_a_new_label_and_icon_are_published_then_kept(world: World) -> None:
    world.hypermedia.answer()
    c, seed = world.account(), os.urandom(32)
    imported = (await c("ImportSigningIdentity", seed=seed, label="Old")).identity
    assert world.hypermedia.published == []
    renamed = await updated(c, imported.name, " New ")
    assert (renamed.id, renamed.label, renamed.account_id) == (imported.id, "New", wire.Key(seed).id)
    assert renamed.server_url == world.hypermedia.url and renamed.updated_at > imported.updated_at
    ((profile,),) = map(read, world.hypermedia.published)
    assert profile["name"] == "New" and "avatar" not in profile

    world.hypermedia.answer()
    with_icon = await updated(c, imported.name, "New", icon={"data": b"png"})
    icon, blobs = world.hypermedia.published
    assert icon == [{"cid": wire.cid_text(wire.cid_bytes(wire.RAW, b"png")), "data": b"png"}]
    assert with_icon.icon == f"ipfs://{icon[0]['cid']}" and read(blobs)[0]["avatar"] == with_icon.icon
    world.hypermedia.answer()
    again = await updated(c, imported.name, "Newer")
    assert again.icon == with_icon.icon and read(world.hypermedia.published[0])[0]["avatar"] == with_icon.icon
    assert await listed(c) == [again]


async def test_rules(world: World) -> None:
    world.hypermedia.answer()
    c = world.account()
    await c.fails(400, "Signing identity label is required", "CreateSigningIdentity", label=" ")
    await c.fails(400, "Signing identity label is too large", "CreateSigningIdentity", label="x" * 257)
    await c.fails(400, "Client request ID is required", "CreateSigningIdentity", label="", client_request_id="")
    await c.fails(400, "Signing key is required", "UpdateSigningIdentity", label="L")
    await c.fails(400, "Signing identity label is required", "UpdateSigningIdentity", name="none")
    await c.fails(404, "Signing identity not found", "UpdateSigningIdentity", name="none", label="L")
    await c.secret("plain", bytes(32))
    await c.fails(404, "Signing identity not found", "UpdateSigningIdentity", name="plain", label="L")
    await c.secret("odd", b"short", kind="hm-account-key")
    await c.fails(400, "Key seed must be exactly 32 bytes", "UpdateSigningIdentity", name="odd", label="L")
    i = (await c("ImportSigningIdentity", seed=os.urandom(32))).identity
    text = "Signing identity icon is required"
    await c.fails(400, text, "UpdateSigningIdentity", name=i.name, label="L", icon={"data": b""})
    assert world.hypermedia.published == [] and i in await listed(c)


async def test_an_identity_that_is_deleted_while_it_is_published_stays_deleted(world: World) -> None:
    world.hypermedia.answer()
    c = world.account()
    i = (await c("ImportSigningIdentity", seed=os.urandom(32))).identity
    world.hypermedia.gate.clear()
    try:
        renaming = asyncio.create_task(
            c.fails(404, "Signing identity not found", "UpdateSigningIdentity", name=i.name, label="L")
        )
        await until(lambda: world.hypermedia.waiting)
        await c("DeleteSigningIdentity", name=i.name)
    finally:
        world.hypermedia.gate.set()
    await renaming
    assert await listed(c) == []


async def test_a_captured_request_publishes_once(world: World) -> None:
    world.hypermedia.answer()
    c = world.account()
    name = (await c("ImportSigningIdentity", seed=os.urandom(32), label="First")).identity.name
    old = c.signature = signatures.header(os.urandom(64), 2**45)
    await updated(c, name, "Old")
    c.signature = signatures.header(os.urandom(64), 2**45)
    await updated(c, name, "New")
    world.hypermedia.answer()
    c.signature = old
    assert (await updated(c, name, "Old")).label == "Old", "the answer of that time"
    assert world.hypermedia.published == [] and [i.label for i in await listed(c)] == ["New"]
