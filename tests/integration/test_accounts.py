"""Identities that are published, sign-ins, and what operators do about accounts; the world outside is scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from libs import wire
from libs.client import ApiError, Client, Key
from libs.protocol.ws import WsAccountChange, WsSubscribed
from libs.stack import Stack
from libs.stack.ops_cli import app
from tests.integration.conftest import ENVIRONMENT
from tests.secrets.fakes import FakeTokenServer
from tests.security.collected import secret
from tests.support.hypermedia import FakeHypermediaServer
from tests.support.kit import World, refused, until

CHANGED = "model-provider-changed"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Outside:
    """The system and what it reaches outside."""

    stack: Stack
    hypermedia: FakeHypermediaServer
    oauth: FakeTokenServer

    async def ops(self, *words: str) -> str:
        """What an operator's command prints."""
        command = [*words, "--data-dir", str(self.stack.data_dir)]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert result.exit_code == 0, result.output
        return result.output


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outside]:
    hypermedia, oauth = FakeHypermediaServer(), FakeTokenServer()
    await hypermedia.start()
    await oauth.start()
    env = {
        **ENVIRONMENT,
        "SEED_AGENTS_HM_SERVER_URL": hypermedia.url,
        "SEED_AGENTS_SUBSCRIPTION_AUTH": "true",
        "SEED_AGENTS_OAUTH_TOKEN_URL": oauth.url,
    }
    try:
        async with Stack(tmp_path_factory.mktemp("accounts") / "data", 0, env=env) as stack:
            yield Outside(stack, hypermedia, oauth)
    finally:
        await hypermedia.stop()
        await oauth.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def there(outside: Outside) -> AsyncIterator[World]:
    async with World(outside.stack.urls) as world:
        yield world


async def test_an_identity_is_made_granted_renamed_and_shown(outside: Outside, there: World) -> None:
    outside.hypermedia.answer()
    owner = await there.owner()
    made = await owner.client.send({"_": "CreateSigningIdentity", "label": "Bot", "clientRequestId": "r"})
    identity = made["identity"]
    assert made["_"] == "CreateSigningIdentityResponse"
    assert set(identity) == {"id", "name", "accountId", "label", "serverUrl", "createdAt", "updatedAt"}
    assert identity["serverUrl"] == outside.hypermedia.url and len(outside.hypermedia.published) == 1
    assert await owner.client.send({"_": "CreateSigningIdentity", "label": "Bot", "clientRequestId": "r"}) == made
    with refused(409, "Client request ID payload mismatch"):
        await owner.client.send({"_": "CreateSigningIdentity", "label": "Other", "clientRequestId": "r"})

    definition = {**(await owner.client.send({"_": "GetAgent", "agentId": owner.agent}))["agent"]["definition"]}
    definition["signingKeys"] = [identity["name"]]
    await owner.client.send({"_": "UpdateAgent", "agentId": owner.agent, "definition": definition})
    await owner.client.send({"_": "SetAgentPublicRead", "agentId": owner.agent, "publicRead": True})
    reader = there.client()
    shown = await reader.send({"_": "ListSigningIdentities", "agentId": owner.agent})
    assert shown["identities"] == [identity]

    update = {"_": "UpdateSigningIdentity", "name": identity["name"], "label": "Renamed"}
    icon = {"data": b"png", "mimeType": "image/png", "fileName": "a.png"}
    renamed = (await owner.client.send({**update, "icon": icon}))["identity"]
    assert renamed["icon"] == "ipfs://" + wire.cid_text(wire.cid_bytes(wire.RAW, b"png"))
    with refused(400, "Signing identity icon is required"):
        await owner.client.send({**update, "icon": {"data": "text"}})
    outside.hypermedia.answer(500)
    server = outside.hypermedia.url
    with refused(502, f"Failed to publish agent account profile to {server}: HTTP 500"):
        await owner.client.send({**update, "label": "Lost"})
    with refused(502, f"Failed to publish agent account to {server}: HTTP 500"):
        await owner.client.send({"_": "CreateSigningIdentity"})
    assert (await owner.client.send({"_": "ListSigningIdentities"}))["identities"] == [renamed]


async def test_a_sign_in_over_the_public_api(outside: Outside, there: World) -> None:
    outside.oauth.answer()
    async with aiohttp.ClientSession() as http, http.get(f"{outside.stack.url}/api/health") as answer:
        assert (await answer.json())["subscriptionAuth"] is True
    client = there.client()
    watch = there.watch(client, f"account/{client.account}")
    started = await client.send({"_": "StartProviderOAuth", "providerType": "openai"})
    assert started["_"] == "StartProviderOAuthResponse" and started["authUrl"].startswith("https://auth.openai.com/")
    login = {"loginId": started["loginId"]}
    status: dict[str, Any] = {"_": "GetProviderOAuthStatus", **login}
    pending = {"_": "ProviderOAuthStatusResponse", **login, "status": "pending"}
    assert await client.send(status) == pending
    submitted = await client.send({"_": "SubmitProviderOAuthCode", **login, "code": "c-1"})
    assert submitted == {"_": "SubmitProviderOAuthCodeResponse"}

    async def finished() -> dict[str, Any] | None:
        seen = await client.send(status)
        return None if seen["status"] == "pending" else seen

    done = {**pending, "status": "completed", "secretName": "openai-subscription-oauth"}
    assert await until(finished) == done
    await watch.wait(lambda event: isinstance(event, WsAccountChange) and event.value.reason == CHANGED)
    config = {"type": "openai", "authMode": "subscription", "secretRefs": {"oauth": done["secretName"]}}
    provider = (await client.send({"_": "SetModelProvider", "name": "chatgpt", "provider": config}))["provider"]
    assert (provider["authMode"], provider["authStatus"]) == ("subscription", "ok")
    assert await client.send({"_": "CancelProviderOAuth", **login}) == {"_": "CancelProviderOAuthResponse", **login}


async def test_a_revoked_signer_is_refused_at_its_next_request(outside: Outside, there: World) -> None:
    issuer, delegate = Key.generate(), Key.generate()
    proof = wire.sign_capability(issuer, delegate.principal, ts=1)
    async with Client(outside.stack.url, delegate) as own, Client(outside.stack.url, delegate, issuer.id) as acting:
        await own.send({"_": "RegisterSigner", "capability": proof})
        await acting.send({"_": "SetSecret", "name": "k", "value": secret("hidden")})
        live = there.watch(acting, f"account/{issuer.id}")
        await live.kind(WsSubscribed)
        listed = await outside.ops("authorizations", "list", "--account", issuer.id)
        assert listed.split()[:3] == [issuer.id, delegate.id, "AGENT"]
        await outside.ops("authorizations", "revoke", issuer.id, delegate.id)
        with refused(401, "Signer is not authorized for account"):
            await acting.send({"_": "ListAgents"})
        # What it listened to ends too: the client connects again by itself, and is refused.
        await until(lambda: isinstance(live.error, ApiError), 5.0, "the socket's end")
    told = await outside.ops("audit", "list", "--account", issuer.id)
    newest, stored, registered = told.splitlines()
    assert "authorization.revoke" in newest and newest.endswith("by - via ops")
    assert f"secret.set  k  by {issuer.id} with {delegate.id} via edge" in stored
    assert "authorization.register" in registered and f"by {delegate.id} via edge" in registered
    assert "hidden" not in told
    assert await outside.ops("authorizations", "list", "--account", issuer.id) == ""


async def test_the_audit_of_members(outside: Outside, there: World) -> None:
    owner = await there.owner()
    invited = there.client().account
    invite = {"_": "InviteAgentCollaborator", "agentId": owner.agent, "accountId": invited, "role": "reader"}
    await owner.client.send(invite)
    (line,) = (await outside.ops("audit", "list", "--members", "--account", owner.client.account)).splitlines()
    by = owner.client.account
    assert line.endswith(f"{by}  member.invite  {owner.agent} ({invited} reader)  by {by} via edge")


async def test_keys_are_rotated_by_a_command(outside: Outside, there: World) -> None:
    owner = await there.owner()
    ring_file = outside.stack.data_dir / "keys" / "keyring.json"
    if not ring_file.exists():
        (ring_file,) = [f for f in outside.stack.data_dir.rglob("*") if f.is_file() and "keyring" in f.name]
    ring = json.loads(ring_file.read_text())
    ring["keys"]["next"] = "A" * 43 + "="
    ring_file.write_text(json.dumps({**ring, "primary": "next"}))
    printed = (await outside.ops("secrets", "rotate", "--batch", "2")).splitlines()
    assert printed[0] == "primary   next" and printed[2:] == [f"wrapped by next: {int(printed[1].split()[1])}"]
    session = await owner.session()
    await owner.client.message(session, "still answered")
