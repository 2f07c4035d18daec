"""Providers: storing, listing, deleting, resolving, references."""

import asyncio
import json

import pytest
from seed.events.v1 import events_pb2

from libs import wire
from libs.events import Bus, account_subject
from tests.secrets.world import Client, World, until

pytestmark = pytest.mark.asyncio(loop_scope="session")
NO_AGENT = "Agent not found"


async def names(c: Client, **fields: str) -> list[str]:
    return [p.name for p in (await c("ListModelProviders", **fields)).providers]


async def test_a_provider_is_stored_redacted(world: World) -> None:
    c = world.account()
    p = await c.provider(" mine ", type=" custom ", baseUrl="http://127.0.0.1:9/v1", secretRefs={"apiKey": "k"})
    assert (p.name, p.type, p.has_secrets, p.auth_mode, p.auth_status) == ("mine", "custom", True, "", "")
    assert list((await c("ListModelProviders")).providers) == [p]


async def test_a_provider_set_again_keeps_its_id_and_comes_first(world: World) -> None:
    c = world.account()
    a = await c.provider("p", type="custom", secretRefs={"apiKey": "k"})
    await c.provider("q", type="ollama")
    b = await c.provider("p", type="ollama")
    assert (b.id, b.created_at, b.type, b.has_secrets) == (a.id, a.created_at, "ollama", False)
    assert b.updated_at > a.updated_at
    listed = (await c("ListModelProviders")).providers
    assert [p.updated_at for p in listed] == sorted((p.updated_at for p in listed), reverse=True)


async def test_providers_set_at_once_all_succeed(world: World) -> None:
    c = world.account()
    got = await asyncio.gather(*[c.provider("p", type="ollama") for _ in range(10)])
    assert len({p.id for p in got}) == 1 and len({p.created_at for p in got}) == 1
    assert len({p.updated_at for p in got}) == 10


async def test_rules_come_after_the_name(world: World) -> None:
    c = world.account()
    await c.fails(400, "Provider name is required", "SetModelProvider", name=" ")
    await c.fails(400, "Provider name is too large", "DeleteModelProvider", name="x" * 257)
    await c.fails(400, "Provider config is required", "SetModelProvider", name="p")
    await c.fails(404, "Model provider not found", "DeleteModelProvider", name="p")
    assert await names(c) == []


async def test_deleting_takes_the_secrets_that_nothing_else_names(world: World) -> None:
    c, other = world.account(), world.account()
    for account in (c, other):
        for secret in ("shared", "alone", "unrelated"):
            await account.secret(secret, b"v")
    await c.provider("one", type="openai", secretRefs={"apiKey": "shared", "more": "alone", "again": "alone"})
    await c.provider("two", type="openai", secretRefs={"anything": "shared"})
    await other.provider("one", type="openai", secretRefs={"apiKey": "alone"})

    async def left(account: Client) -> set[str]:
        return {r["name"] for r in await world.sql("select name from secrets where account = $1", account.id)}

    assert (await c("DeleteModelProvider", name=" one ")).name == "one"
    assert await left(c) == {"shared", "unrelated"}
    await c("DeleteModelProvider", name="two")
    assert await left(c) == {"unrelated"} and len(await left(other)) == 3


async def test_providers_deleted_at_once_leave_no_secret_behind(world: World) -> None:
    for _ in range(5):
        c = world.account()
        await c.secret("k", b"v")
        for name in ("a", "b", "c"):
            await c.provider(name, type="openai", secretRefs={"apiKey": "k"})
        await asyncio.gather(*[c("DeleteModelProvider", name=name) for name in ("a", "b", "c")])
        assert await world.sql("select name from secrets where account = $1", c.id) == []


async def test_changes_are_told_to_the_account_alone(world: World) -> None:
    c = world.account()
    bus, heard = Bus(world.nats_url, "test"), []
    await bus.start()
    try:
        await bus.subscribe(account_subject(c.id), lambda _, body: heard.append(events_pb2.Event.FromString(body)))
        assert await bus.flush()
        await c.provider("p", type="ollama")
        await until(lambda: len(heard) == 1)
        await c("DeleteModelProvider", name="p")
        await until(lambda: len(heard) == 2)
        assert {e.account_hint.reason for e in heard} == {"model-provider-changed"}
        assert {tuple(e.account_hint.accounts) for e in heard} == {(c.id,)} and {e.account for e in heard} == {c.id}
    finally:
        await bus.close()


async def test_a_subscription_is_as_healthy_as_its_sign_in(world: World) -> None:
    c = world.account()
    config = {"type": "openai", "authMode": "subscription", "secretRefs": {"oauth": "login"}}
    p = await c.provider("sub", **config)
    assert (p.auth_mode, p.auth_status) == ("subscription", "needs-login")
    assert await c.models("sub")

    async def status() -> str:
        (listed,) = (await c("ListModelProviders")).providers
        return listed.auth_status

    await c.secret("login", b"{}")
    assert await status() == "ok" and (await c.provider("sub", **config)).auth_status == "ok"
    await c.secret("login", b"{}", needsReauth=True)
    assert await status() == "needs-login"
    await c.secret("login", b"{}", kind="provider-oauth")
    assert await status() == "ok"
    plain = await c.provider("sub", type="openai", authMode="api-key")
    assert (plain.auth_mode, plain.auth_status) == ("", "")


async def test_what_is_stored_is_answered_for_that_record_alone(world: World) -> None:
    """Several providers and several sign-ins in the database: each answer is about the one that was set."""
    c, other = world.account(), world.account()
    for who in (c, other):
        await who.secret("login", b"{}")
        await who.secret("second", b"{}", needsReauth=True)
    for who in (c, other):
        for name, oauth, health in (("a", "login", "ok"), ("b", "second", "needs-login"), ("c", "none", "needs-login")):
            config = {"type": "openai", "authMode": "subscription", "secretRefs": {"oauth": oauth}}
            for _ in range(2):
                assert (await who.provider(name, **config)).auth_status == health
    assert {p.name: p.auth_status for p in (await c("ListModelProviders")).providers} == {
        "a": "ok",
        "b": "needs-login",
        "c": "needs-login",
    }


async def test_a_reader_of_an_agent_sees_the_owners_providers(world: World) -> None:
    owner, reader, stranger = (world.account() for _ in range(3))
    agent = world.agent(owner, reader=reader)
    await owner.provider("owners", type="ollama")
    await reader.provider("readers", type="ollama")
    for c in (owner, reader):
        assert await names(c, agent_id=agent) == ["owners"]
    assert await names(reader) == ["readers"]
    await owner.provider("sub", type="openai", authMode="subscription", secretRefs={"oauth": "x"})
    assert await reader.models("sub", agent_id=agent)
    for agent_id in (agent, "", "none"):
        await stranger.fails(404, NO_AGENT, "ListModelProviders", agent_id=agent_id)
        await stranger.fails(404, NO_AGENT, "ListProviderModels", agent_id=agent_id, provider="")
    world.sessions.agents[agent].roles.clear()
    await reader.fails(404, NO_AGENT, "ListModelProviders", agent_id=agent)


async def test_a_worker_gets_all_it_needs(world: World) -> None:
    c, worker = world.account(), world.client("runs-worker")
    await c.secret("k", " sk-ünï\n".encode())
    await c.provider(
        "p", type="custom", baseUrl="http://h/v1", secretRefs={"apiKey": "k"}, modelDefaults={"temperature": 0.25}
    )
    got = await worker("ResolveModelProvider", account=c.id, provider="p")
    assert (got.type, got.base_url, got.api_key, got.auth_mode) == ("custom", "http://h/v1", "sk-ünï", "api-key")
    assert wire.decode(got.model_defaults) == {"temperature": 0.25}
    await c.secret("k", b"new")
    assert (await worker("ResolveModelProvider", account=c.id, provider="p")).api_key == "new"

    await c.provider("p", type="openai", baseUrl="http://evil/v1", secretRefs={"apiKey": "k"})
    got = await worker("ResolveModelProvider", account=c.id, provider="p")
    assert (got.base_url, got.model_defaults) == ("", b""), "a pinned type's key goes to the vendor alone"

    tokens = {"access": "t", "refresh": "r", "expires": 10**15, "accountId": "acc"}
    await c.secret("login", json.dumps(tokens).encode())
    await c.provider("p", type="openai", authMode="subscription", secretRefs={"oauth": "login", "apiKey": "k"})
    got = await worker("ResolveModelProvider", account=c.id, provider="p")
    assert (got.auth_mode, got.api_key, got.provider_account) == ("subscription", "t", "acc")

    await c.provider("p", type="ollama")
    got = await worker("ResolveModelProvider", account=c.id, provider="p")
    assert (got.type, got.base_url, got.api_key) == ("ollama", "", "")


async def test_what_cannot_be_resolved(world: World) -> None:
    c, worker = world.account(), world.client("runs-worker")
    for name in ("none", "", "a\0b"):
        await worker.fails(404, "Model provider not found", "ResolveModelProvider", account=c.id, provider=name)
    for config, message in (
        ({"type": "odd"}, "Unsupported model provider type: odd"),
        ({"type": "groq"}, "groq API key is not configured"),
        ({"type": "custom", "secretRefs": {"apiKey": "gone"}}, "Required secret is not configured"),
        (
            {"type": "openai", "authMode": "subscription", "secretRefs": {"oauth": "gone"}},
            "Required secret is not configured",
        ),
        ({"type": "custom"}, "Base URL is required for provider type: custom"),
    ):
        await c.provider("p", **config)
        await worker.fails(400, message, "ResolveModelProvider", account=c.id, provider="p")


async def test_credentials_go_to_workers_only(world: World) -> None:
    c = world.account()
    await c.provider("p", type="ollama")
    for service in ("edge", "sessions", "runs-api", "ops"):
        caller = world.client(service, c.id)
        await caller.fails(
            403, "This service may not make this call", "ResolveModelProvider", account=c.id, provider="p"
        )
    for service in ("edge", "runs-worker"):
        await world.client(service).fails(403, "This service may not make this call", "CheckReferences", account=c.id)


async def test_references(world: World) -> None:
    c, sessions = world.account(), world.client("sessions")
    await c.provider("p", type="odd")
    await c.secret("key", b"", kind="hm-account-key")
    await c.secret("other", b"")
    asked = ["none", "key", "other", "a\0b", "none"]
    got = await sessions("CheckReferences", account=c.id, provider="p", signing_keys=asked)
    assert got.provider_type == "odd" and list(got.missing_signing_keys) == ["none", "other", "a\0b", "none"]
    assert dict(got.signing_accounts) == {}
    await c.secret("named", b"", kind="hm-account-key", accountId="z6Mk1")
    await c.secret("numbered", b"", kind="hm-account-key", accountId=1)
    got = await sessions("CheckReferences", account=c.id, provider="p", signing_keys=["numbered", "key", "named"])
    assert dict(got.signing_accounts) == {"named": "z6Mk1"} and not got.missing_signing_keys
    for name in ("q", "", "p\0"):
        got = await sessions("CheckReferences", account=c.id, provider=name)
        assert not got.HasField("provider_type") and not got.missing_signing_keys
    assert not (await sessions("CheckReferences", account="another", provider="p")).HasField("provider_type")
