"""Turns under a ChatGPT subscription, through the whole system: two workers, a token endpoint and a backend."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from libs.client import Client
from libs.protocol.agents import AgentDefinition
from libs.protocol.secrets import ModelProviderConfig
from libs.stack import Stack
from tests.integration.conftest import ENVIRONMENT
from tests.secrets.fakes import FakeTokenServer
from tests.security.collected import secret
from tests.support.kit import World, refused, text, until
from tests.support.providers import Answer, ProviderServer, Received, Refuse, Say

pytestmark = pytest.mark.asyncio(loop_scope="session")
SECRET = "openai-subscription-oauth"
EXPIRED = (
    "Your OpenAI subscription sign-in has expired or was revoked. Open model provider settings and sign in with "
    "ChatGPT again."
)


@dataclass
class House:
    """The system, the servers of OpenAI, and which of the tokens are good."""

    stack: Stack
    world: World
    oauth: FakeTokenServer
    backend: ProviderServer
    good: set[str] = field(default_factory=set)

    def answer(self, seen: Received) -> Answer:
        token = seen.headers["authorization"].removeprefix("Bearer ")
        if token not in self.good:
            return Refuse(401, f"Your authentication token {token} is invalid")
        return Say(["Under", " subscription"], thinking="hm")

    async def signed_in(self, access: str) -> tuple[Client, str]:
        """An account with such a token and an agent that uses it."""
        client = self.world.client()
        kept = {
            "access": access,
            "refresh": f"r-{client.account[-8:]}",
            "expires": int(time.time() * 1000) + 4_000_000,
            "accountId": "acc-1",
        }
        await client.set_secret(SECRET, json.dumps(kept).encode(), {"kind": "provider-oauth"})
        config = ModelProviderConfig(type="openai", auth_mode="subscription", secret_refs={"oauth": SECRET})
        await client.set_provider("chatgpt", config)
        definition = AgentDefinition(
            name="Agent", system_prompt="Be brief.", model_provider="chatgpt", model="gpt-5.6-terra"
        )
        return client, await client.create_agent(definition)

    def renewed(self, client: Client) -> str:
        """The token that its refresh token is exchanged for."""
        return self.oauth.token(f"r-{client.account[-8:]}+")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    oauth = FakeTokenServer()
    await oauth.start()
    async with ProviderServer() as backend:
        env = {
            **ENVIRONMENT,
            "SEED_AGENTS_SUBSCRIPTION_AUTH": "true",
            "SEED_AGENTS_OAUTH_TOKEN_URL": oauth.url,
            "SEED_AGENTS_CHATGPT_URL": f"{backend.root}/backend-api/codex",
        }
        stack = Stack(tmp_path_factory.mktemp("subscriptions") / "data", 0, workers=2, env=env)
        async with stack, World(stack.urls) as world:
            made = House(stack, world, oauth, backend)
            backend.reply = made.answer
            yield made
    await oauth.stop()


async def status(client: Client) -> str | None:
    [provider] = (await client.call("ListModelProviders")).providers
    return provider.auth_status


async def ask(client: Client, agent: str) -> list[Any]:
    session = await client.create_session(agent)
    await client.message(session, "hello")
    return [event.event for event in (await client.session(session)).events]


async def test_a_turn_under_a_subscription(house: House) -> None:
    client, agent = await house.signed_in(secret("t-1").decode())
    house.good, house.backend.received[:] = {secret("t-1").decode()}, []
    question, answer = await ask(client, agent)
    assert question["content"] == "hello" and answer["content"] == "Under subscription"
    assert (answer["meta"]["model"], answer["meta"]["provider"]) == ("gpt-5.6-terra", "openai")
    assert answer["meta"]["usage"]["total"] == 15
    [request] = house.backend.received
    assert request.path == "/backend-api/codex/responses" and request.headers["chatgpt-account-id"] == "acc-1"
    assert request.body["store"] is False and "Be brief." in request.body["instructions"]
    assert house.oauth.forms == [] and await status(client) == "ok"


async def test_a_stale_token_is_renewed_once_for_all_turns(house: House) -> None:
    """The provider takes a refresh token once: a second use would end the sign-in."""
    client, agent = await house.signed_in(secret("t-stale").decode())
    house.oauth.answer()
    house.good = {house.renewed(client)}
    logs = await asyncio.gather(*(ask(client, agent) for _ in range(6)))
    assert [log[-1]["content"] for log in logs] == ["Under subscription"] * 6
    assert len(house.oauth.forms) == 1 and await status(client) == "ok"


async def test_a_sign_in_that_was_revoked_fails_the_run_and_asks_for_another(house: House) -> None:
    client, agent = await house.signed_in(secret("t-revoked").decode())
    house.oauth.answer()
    house.good = set()
    watch = house.world.watch(client, f"account/{client.account}")
    session = await client.create_session(agent)
    with refused(401, EXPIRED):
        await client.send({"_": "MessageSession", "sessionId": session, "content": text("hello")})
    await until(lambda: "model-provider-changed" in watch.hints(), what="the hint")
    assert await status(client) == "needs-login"
    log = [event.event for event in (await client.session(session)).events]
    assert log[-1] == {"type": "error", "message": EXPIRED}
    [run] = (await client.call("ListRuns", sessionId=session)).runs
    assert (run.status, run.error.code, run.error.message) == ("failed", "config-error", EXPIRED)
    asked = len(house.backend.received)
    with refused(401, EXPIRED):
        await client.send({"_": "MessageSession", "sessionId": session, "content": text("again")})
    assert len(house.backend.received) == asked and len(house.oauth.forms) == 1
