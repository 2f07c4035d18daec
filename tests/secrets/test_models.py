"""Listing models over real HTTP."""

import json

import pytest

from tests.secrets.world import Client, World

pytestmark = pytest.mark.asyncio(loop_scope="session")
LIST = json.dumps({"data": [{"id": "b"}, "junk", {"id": "a", "display_name": "A"}], "models": [{"name": "models/g"}]})
KEY = "sk-very-secret"


async def account(world: World) -> Client:
    c = world.account()
    await c.secret("k", KEY.encode() + b"\n")
    world.vendor.answer(200, LIST.encode())
    return c


async def test_each_kind_of_list(world: World) -> None:
    c = await account(world)
    for kind, path, models in (
        ("openai", "/openai/models", [("b", "b"), ("a", "a")]),
        ("anthropic", "/anthropic/v1/models", [("b", "b"), ("a", "A")]),
        ("google", f"/google/models?key={KEY}", [("g", "g")]),
    ):
        await c.provider("p", type=kind, secretRefs={"apiKey": "k"}, baseUrl="http://192.0.2.1/elsewhere")
        assert await c.models(" p ") == models
        assert world.vendor.asked[-1][0] == path
    headers = [asked for _, asked in world.vendor.asked]
    assert headers[0]["authorization"] == f"Bearer {KEY}" and "authorization" not in headers[1] | headers[2]
    assert (headers[1]["x-api-key"], headers[1]["anthropic-version"]) == (KEY, "2023-06-01")


async def test_an_accounts_own_url(world: World) -> None:
    c = await account(world)
    for n, url in enumerate(
        (f"{world.vendor.root}/own", f"  {world.vendor.root}/own// ", f"{world.vendor.root}/own?a=b")
    ):
        kind = "custom" if n else "ollama"
        await c.provider("p", type=kind, baseUrl=url)
        assert await c.models("p") == [("b", "b"), ("a", "a")]
        assert world.vendor.asked[-1][0] == "/own/models" and "authorization" not in world.vendor.asked[-1][1]


async def test_what_is_missing(world: World) -> None:
    c = await account(world)
    await c.fails(400, "Model provider is required", "ListProviderModels", provider=" ")
    await c.fails(404, "Model provider not found", "ListProviderModels", provider="p")
    for config, message in (
        ({"type": "odd"}, "Unsupported model provider type: odd"),
        ({"type": "xai"}, "xai API key is not configured"),
        ({"type": "openai", "secretRefs": {"apiKey": "nothing"}}, "Required secret is not configured"),
        ({"type": "custom"}, "Base URL is required for provider type: custom"),
    ):
        await c.provider("p", **config)
        await c.fails(400, message, "ListProviderModels", provider="p")
    assert world.vendor.asked == []


async def test_what_the_provider_does_wrong(world: World) -> None:
    c = await account(world)
    for kind, title in (("deepseek", "OpenAI"), ("anthropic", "Anthropic"), ("google", "Google")):
        await c.provider("p", type=kind, secretRefs={"apiKey": "k"})
        for status in (401, 404, 500):
            world.vendor.answer(status, b"{}")
            await c.fails(502, f"{title} models request failed: HTTP {status}", "ListProviderModels", provider="p")
        world.vendor.answer(302, b"", Location=f"{world.vendor.root}/elsewhere")
        await c.fails(502, f"{title} models request failed: HTTP 302", "ListProviderModels", provider="p")
        assert len(world.vendor.asked) == 1, "a key does not follow a redirect"
        for body in (b"<html>", b"{}", b"null"):
            world.vendor.answer(200, body)
            await c.fails(502, f"{title} models response is invalid", "ListProviderModels", provider="p")
        world.vendor.answer(200, b"x" * (9 * 1024 * 1024))
        await c.fails(
            502, f"{title} models request failed: the answer is too large", "ListProviderModels", provider="p"
        )


async def test_private_addresses_and_dead_hosts(world: World) -> None:
    c = await account(world)
    for url, cause in (
        ("http://localhost:9/v1", "localhost points to a private address"),
        ("http://169.254.169.254/", "169.254.169.254 points to a private address"),
        ("http://[::1]:9/", "::1 points to a private address"),
        ("http://127.0.0.1:9/v1", "could not connect"),
    ):
        await c.provider("p", type="custom", baseUrl=url, secretRefs={"apiKey": "k"})
        await c.fails(502, f"OpenAI models request failed: {cause}", "ListProviderModels", provider="p")


async def test_a_key_that_cannot_be_sent(world: World) -> None:
    c = await account(world)
    await c.secret("k", b"a\r\nx-evil: 1")
    await c.provider("p", type="openai", secretRefs={"apiKey": "k"})
    await c.fails(400, "openai API key contains an invalid character", "ListProviderModels", provider="p")
    assert world.vendor.asked == []
