"""SetSecret and the model provider actions over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from libs.protocol.actions import (
    DeleteModelProvider,
    ListModelProviders,
    ListProviderModels,
    SetModelProvider,
    SetSecret,
)
from libs.protocol.secrets import ModelProviderConfig
from tests.support.kit import World, refused, until


async def provider_names(client: Any) -> list[str]:
    return [provider.name for provider in (await client.call(ListModelProviders())).providers]


async def test_a_secret_is_never_shown_and_setting_it_again_replaces_it(world: World) -> None:
    client = world.client()
    first = (await client.call(SetSecret(name="key", value=b"one", metadata={"for": "tests"}))).secret
    assert (first.name, first.metadata, first.has_value) == ("key", {"for": "tests"}, True)
    again = await client.send({"_": "SetSecret", "name": " key ", "value": b"two"})
    assert again["secret"]["id"] == first.id
    assert again["secret"]["createdAt"] == first.created_at
    assert "metadata" not in again["secret"]
    assert set(again["secret"]) == {"id", "name", "hasValue", "createdAt", "updatedAt"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "Secret name is required"),
        ({"name": "x" * 257}, "Secret name is too large"),
        ({"value": "text"}, "Secret value is required"),
        ({"value": None}, "Secret value is required"),
        ({"value": bytes(65_537)}, "Secret value is too large"),
        ({"metadata": [1]}, "Metadata must be an object"),
        ({"metadata": {"x": "y" * 20_000}}, "Metadata is too large"),
    ],
)
async def test_a_bad_secret_is_refused(world: World, change: dict[str, Any], message: str) -> None:
    with refused(400, message):
        await world.client().send({"_": "SetSecret", "name": "key", "value": b"v", **change})


async def test_providers_are_listed_redacted_newest_change_first(world: World) -> None:
    client = world.client()
    await client.set_secret("k", b"sk-very-secret")
    config = ModelProviderConfig(type="custom", base_url="http://127.0.0.1:1/v1", secret_refs={"apiKey": "k"})
    made = (await client.call(SetModelProvider(name="one", provider=config))).provider
    await client.set_provider("two", ModelProviderConfig(type="ollama"))
    assert await provider_names(client) == ["two", "one"]
    again = (await client.call(SetModelProvider(name="one", provider=config))).provider
    assert (again.id, again.created_at) == (made.id, made.created_at)
    assert await provider_names(client) == ["one", "two"]
    [one, two] = (await client.send({"_": "ListModelProviders"}))["providers"]
    assert (one["hasSecrets"], two["hasSecrets"]) == (True, False)
    assert set(one) == {"id", "name", "type", "hasSecrets", "createdAt", "updatedAt"}
    assert "sk-very-secret" not in repr((one, two))
    assert await provider_names(world.client()) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "Provider config is required"),
        ({}, "Provider type is required"),
        ({"type": "openai", "authMode": "x"}, "Provider auth mode must be 'api-key' or 'subscription'"),
        ({"type": "groq", "authMode": "subscription"}, "Provider type does not support subscription auth: groq"),
        (
            {"type": "openai", "authMode": "subscription"},
            "Subscription providers require a secretRefs.oauth credential reference",
        ),
        ({"type": "custom", "baseUrl": "not a url"}, "Provider base URL is invalid"),
        ({"type": "custom", "modelDefaults": []}, "Model defaults must be an object"),
        ({"type": "custom", "modelDefaults": {"x": "y" * 20_000}}, "Model defaults are too large"),
        ({"type": "custom", "secretRefs": []}, "Secret refs must be an object"),
        ({"type": "custom", "secretRefs": {"apiKey": ""}}, "Secret ref value is required"),
    ],
)
async def test_a_bad_provider_is_refused(world: World, config: Any, message: str) -> None:
    with refused(400, message):
        await world.client().send({"_": "SetModelProvider", "name": "p", "provider": config})


async def test_models_come_from_the_provider_with_its_key(world: World) -> None:
    owner = await world.owner()
    owner.provider.models = ["m-1", "m-2"]
    models = (await owner.client.call(ListProviderModels(provider="scripted"))).models
    assert [(m.id, m.name) for m in models] == [("m-1", "m-1"), ("m-2", "m-2")]
    with refused(404, "Model provider not found"):
        await owner.client.call(ListProviderModels(provider="none"))
    await owner.client.send({"_": "SetModelProvider", "name": "odd", "provider": {"type": "abacus"}})
    with refused(400, "Unsupported model provider type: abacus"):
        await owner.client.call(ListProviderModels(provider="odd"))
    await owner.client.send({"_": "SetModelProvider", "name": "keyless", "provider": {"type": "openai"}})
    with refused(400, "openai API key is not configured"):
        await owner.client.call(ListProviderModels(provider="keyless"))
    refs = {"type": "openai", "secretRefs": {"apiKey": "nowhere"}}
    await owner.client.send({"_": "SetModelProvider", "name": "dangling", "provider": refs})
    with refused(400, "Required secret is not configured"):
        await owner.client.call(ListProviderModels(provider="dangling"))
    await owner.client.send({"_": "SetModelProvider", "name": "nowhere", "provider": {"type": "custom"}})
    with refused(400, "Base URL is required for provider type: custom"):
        await owner.client.call(ListProviderModels(provider="nowhere"))


async def test_a_member_sees_the_owners_providers_redacted_and_a_stranger_nothing(world: World) -> None:
    owner = await world.owner()
    reader = await world.member(owner, "reader")
    [seen] = (await reader.call(ListModelProviders(agent_id=owner.agent))).providers
    assert seen.name == "scripted"
    models = (await reader.call(ListProviderModels(provider="scripted", agent_id=owner.agent))).models
    assert [m.id for m in models] == owner.provider.models
    assert (await reader.call(ListModelProviders())).providers == []
    for action in (
        ListModelProviders(agent_id=owner.agent),
        ListProviderModels(provider="scripted", agent_id=owner.agent),
    ):
        with refused(404, "Agent not found"):
            await world.client().call(action)


async def test_a_deleted_provider_takes_its_own_secrets_and_its_agents_fail_then(world: World) -> None:
    owner = await world.owner()
    await world.use(owner.client, owner.provider, "second")
    shared = ModelProviderConfig(
        type="custom", base_url=owner.provider.url, secret_refs={"apiKey": "second-key", "more": "scripted-key"}
    )
    await owner.client.set_provider("third", shared)
    session = await owner.session()
    assert (await owner.client.call(DeleteModelProvider(name="scripted"))).name == "scripted"
    assert await provider_names(owner.client) == ["third", "second"]
    # `third` still needs scripted-key, so it was kept.
    assert (await owner.client.call(ListProviderModels(provider="third"))).models
    with refused(404, "Model provider not found"):
        await owner.client.call(DeleteModelProvider(name="scripted"))
    with refused(400, "Model provider not found"):
        await owner.client.message(session, "hi")
    assert await owner.status(session) == "error"


async def test_provider_changes_are_hinted(world: World) -> None:
    owner = await world.owner()
    account = world.watch(owner.client, f"account/{owner.client.account}")
    await until(lambda: account.events, what="subscribed")
    await owner.client.set_provider("p", ModelProviderConfig(type="ollama"))
    await owner.client.call(DeleteModelProvider(name="p"))
    await until(lambda: account.hints() == ["model-provider-changed"] * 2, what="two hints")
