"""Sign-in to subscriptions: two replicas, a scripted token server, and what happens when either ends or fails."""

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import grpc
import pytest
import pytest_asyncio
from seed.events.v1 import events_pb2

from libs import wire
from libs.events import Bus
from libs.settings import load
from libs.stack.ports import free_ports
from services.secrets.server import serve
from services.secrets.settings import SecretsSettings
from tests.secrets.conftest import RING
from tests.secrets.fakes import FakeTokenServer
from tests.secrets.test_process import start
from tests.secrets.world import INTERNAL_KEY, Client, until

pytestmark = pytest.mark.asyncio(loop_scope="session")
SECRET = "openai-subscription-oauth"
EXPIRED = (
    "Your OpenAI subscription sign-in has expired or was revoked. Open model provider settings and sign in with "
    "ChatGPT again."
)


class Replica:
    """A running service of its own on the shared stores."""

    def __init__(self, settings: SecretsSettings) -> None:
        self._settings, self._stop = settings, asyncio.Event()
        self.port = 0

    async def start(self) -> "Replica":
        port = asyncio.get_running_loop().create_future()
        self._served = asyncio.create_task(serve(self._settings, self._stop, port.set_result))
        await asyncio.wait([self._served, port], timeout=30, return_when=asyncio.FIRST_COMPLETED)
        if self._served.done():
            self._served.result()
        self.port = port.result()
        return self

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.wait_for(self._served, 10)


class Signing:
    """Replicas, the token server, and fresh accounts."""

    def __init__(self, stores: dict[str, str], ring: Path, oauth: FakeTokenServer) -> None:
        self.stores, self.oauth = stores, oauth
        self.environment = {
            "SECRETS_KEYRING_FILE": str(ring),
            "SUBSCRIPTION_AUTH": "yes",
            "OAUTH_AUTHORIZE_URL": "https://sign-in.example/authorize",
            "OAUTH_TOKEN_URL": oauth.url,
            "OAUTH_CLIENT_ID": "client-1",
        }
        self.settings = load(
            SecretsSettings,
            {
                "SEED_AGENTS_DATABASE_URL": stores["database"],
                "SEED_AGENTS_NATS_URL": stores["nats"],
                "SEED_AGENTS_INTERNAL_KEY": INTERNAL_KEY,
                **{f"SEED_AGENTS_{name}": value for name, value in self.environment.items()},
            },
        )
        self.replicas: list[Replica] = []
        self._clients: list[Client] = []

    def client(self, service: str, account: str = "", at: int = 0, signer: str = "") -> Client:
        client = Client(self.replicas[at].port, service, account, signer)
        self._clients.append(client)
        return client

    def account(self, at: int = 0, signer: str = "") -> Client:
        return self.client("edge", wire.Key.generate().id, at, signer)

    async def subscription(self, c: Client, **tokens: Any) -> None:
        """A subscription provider `p` with stored tokens."""
        kept = {"access": "a", "refresh": f"r-{c.id[-8:]}", "expires": 1, "accountId": "acc-0", **tokens}
        await c.secret(SECRET, json.dumps(kept).encode(), kind="provider-oauth")
        await c.provider("p", type="openai", authMode="subscription", secretRefs={"oauth": SECRET})

    async def resolve(self, c: Client, at: int = 0, **refused: Any) -> Any:
        return await self.client("runs-worker", at=at)("ResolveModelProvider", account=c.id, provider="p", **refused)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        for replica in self.replicas:
            await replica.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def signing(stores: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Signing]:
    ring = tmp_path_factory.mktemp("ring") / "ring.json"
    ring.write_text(json.dumps(RING))
    oauth = FakeTokenServer()
    await oauth.start()
    signing = Signing(stores, ring, oauth)
    signing.replicas = [await Replica(signing.settings).start() for _ in range(2)]
    try:
        yield signing
    finally:
        oauth.gate.set()
        await signing.close()
        await oauth.stop()


async def begun(c: Client) -> tuple[str, dict[str, str]]:
    """A pending sign-in: its id and the parameters of its page."""
    started = await c("StartProviderOAuth", provider_type=" openai ")
    assert abs(started.expires_at - time.time() * 1000 - 600_000) < 10_000
    return started.login_id, {k: v[0] for k, v in parse_qs(urlsplit(started.auth_url).query).items()}


async def status(c: Client, login: str) -> tuple[str, str, str]:
    s = await c("GetProviderOAuthStatus", login_id=login)
    assert s.login_id == login
    return s.status, s.secret_name, s.error


async def ended(c: Client, login: str, within: float = 8.0) -> tuple[str, str, str]:
    async with asyncio.timeout(within):
        while (seen := await status(c, login))[0] == "pending":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return seen


async def auth_status(c: Client) -> str:
    return (await c("ListModelProviders")).providers[0].auth_status


async def test_a_sign_in_from_its_page_to_its_tokens(signing: Signing) -> None:
    signing.oauth.answer()
    signer = wire.Key.generate().id
    c = signing.account(signer=signer)
    await c.provider("p", type="openai", authMode="subscription", secretRefs={"oauth": SECRET})
    hints: list[str] = []
    bus = Bus(signing.stores["nats"], "test")
    await bus.start()
    await bus.subscribe(
        f"seed.v1.{c.id}.>", lambda _, body: hints.append(events_pb2.Event.FromString(body).account_hint.reason)
    )
    await bus.flush()
    login, page = await begun(c)
    challenge = page.pop("code_challenge")
    state = page.pop("state")
    assert page == {
        "response_type": "code",
        "client_id": "client-1",
        "redirect_uri": "http://localhost:1455/auth/callback",
        "scope": "openid profile email offline_access",
        "code_challenge_method": "S256",
        "id_token_add_organizations": "true",
        "codex_cli_simplified_flow": "true",
        "originator": "pi",
    }
    assert await status(c, login) == ("pending", "", "") and await auth_status(c) == "needs-login"
    redirect = f"http://localhost:1455/auth/callback?code=c-1&state={state}"
    await c("SubmitProviderOAuthCode", login_id=login, code=redirect)
    assert await ended(c, login) == ("completed", SECRET, "")
    (form,) = signing.oauth.forms
    verifier = form.pop("code_verifier")
    assert base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode() == challenge
    assert form == {
        "grant_type": "authorization_code",
        "client_id": "client-1",
        "code": "c-1",
        "redirect_uri": "http://localhost:1455/auth/callback",
    }
    assert await auth_status(c) == "ok"
    await until(lambda: hints == ["model-provider-changed"])
    usable = await signing.resolve(c)
    assert (usable.api_key, usable.auth_mode, usable.provider_account) == (
        signing.oauth.token("c-1+"),
        "subscription",
        "acc-1",
    )
    entry = (await signing.client("ops")("ListAudit", account=c.id)).entries[0]
    assert (entry.action, entry.subject, entry.detail) == ("secret.sign-in", SECRET, "openai")
    assert (entry.actor, entry.signer, entry.via) == (c.id, signer, "secrets")
    await c.fails(400, "Sign-in is no longer pending", "SubmitProviderOAuthCode", login_id=login, code="again")
    await c("CancelProviderOAuth", login_id=login)
    assert await status(c, login) == ("completed", SECRET, "")
    other = signing.account()
    await other.fails(404, "Sign-in not found", "GetProviderOAuthStatus", login_id=login)
    await other.fails(400, "Sign-in not found", "SubmitProviderOAuthCode", login_id=login, code="x")
    await bus.close()


@pytest.mark.parametrize("form", ["code=c-{n}&state={state}", "?code=c-{n}", "c-{n}#{state}", " c-{n} "])
async def test_forms_of_a_code(signing: Signing, form: str) -> None:
    signing.oauth.answer()
    c = signing.account()
    login, page = await begun(c)
    code = form.format(n=login, state=page["state"])
    await c("SubmitProviderOAuthCode", login_id=login, code=code)
    assert (await ended(c, login))[0] == "completed"
    assert signing.oauth.forms[0]["code"] == f"c-{login}"


async def test_what_cannot_be_exchanged_fails_with_its_cause(signing: Signing) -> None:
    c = signing.account()

    async def outcome(code: str) -> tuple[str, str, str]:
        login, _ = await begun(c)
        await c("SubmitProviderOAuthCode", login_id=login, code=code)
        return await ended(c, login)

    signing.oauth.answer()
    assert await outcome("c#of-another") == ("failed", "", "The code belongs to another sign-in")
    assert await outcome("http://localhost:1455/auth/callback?error=x") == (
        "failed",
        "",
        "There is no authorization code in it",
    )
    assert signing.oauth.forms == []
    for number in (400, 503):
        signing.oauth.answer(number)
        assert await outcome("c") == ("failed", "", f"The provider answered HTTP {number}")
    for body, cause in (
        (b"<html>", "The provider's answer holds no tokens"),
        (b'{"access_token": "a", "refresh_token": "b"}', "The provider's answer does not say how long its tokens last"),
        (b'{"access_token": "a.b.c", "refresh_token": "b", "expires_in": 5}', "The provider named no account"),
    ):
        signing.oauth.answer(body=body)
        assert await outcome("c") == ("failed", "", cause)
    signing.oauth.answer()
    kept = await c("ListModelProviders")
    assert list(kept.providers) == []


async def test_only_one_sign_in_an_account(signing: Signing) -> None:
    signing.oauth.answer()
    c, other = signing.account(), signing.account()
    first, _ = await begun(c)
    theirs, _ = await begun(other)
    second, _ = await begun(c)
    assert await status(c, first) == ("failed", "", "Replaced by a new sign-in")
    await c.fails(400, "Sign-in is no longer pending", "SubmitProviderOAuthCode", login_id=first, code="x")
    assert (await c("CancelProviderOAuth", login_id=second)).login_id == second
    assert await status(c, second) == ("failed", "", "Sign-in canceled")
    assert (await status(other, theirs))[0] == "pending"
    await c.fails(400, "Provider type is required", "StartProviderOAuth", provider_type="")
    text = "Provider type does not support subscription sign-in: anthropic"
    await c.fails(400, text, "StartProviderOAuth", provider_type="anthropic")


async def test_what_is_canceled_while_it_is_exchanged_stores_nothing(signing: Signing) -> None:
    signing.oauth.answer()
    c = signing.account()
    await c.provider("p", type="openai", authMode="subscription", secretRefs={"oauth": SECRET})
    login, _ = await begun(c)
    signing.oauth.gate.clear()
    try:
        await c("SubmitProviderOAuthCode", login_id=login, code=f"c-{login}")
        await c("SubmitProviderOAuthCode", login_id=login, code="a second one is not exchanged")
        await until(lambda: signing.oauth.forms)
        await c("CancelProviderOAuth", login_id=login)
    finally:
        signing.oauth.gate.set()
    assert await status(c, login) == ("failed", "", "Sign-in canceled")
    # Whatever is still under way has come to its end once a later sign-in has.
    later, _ = await begun(c)
    await c("SubmitProviderOAuthCode", login_id=later, code="c#wrong")
    await ended(c, later)
    assert await auth_status(c) == "needs-login" and len(signing.oauth.forms) == 1


async def sql(signing: Signing, statement: str, *values: Any) -> list[Any]:
    connection = await asyncpg.connect(signing.stores["database"])
    try:
        return await connection.fetch(statement, *values)
    finally:
        await connection.close()


async def test_a_sign_in_ends_by_itself_and_is_forgotten(signing: Signing) -> None:
    c = signing.account()
    login, _ = await begun(c)
    age = "update provider_logins set expires_at = $2 where id = $1"
    now = int(time.time() * 1000)
    await sql(signing, age, login, now - 1)
    assert await status(c, login) == ("failed", "", "Sign-in timed out")
    await c.fails(400, "Sign-in is no longer pending", "SubmitProviderOAuthCode", login_id=login, code="x")
    await sql(signing, age, login, now - 600_001)
    await c.fails(404, "Sign-in not found", "GetProviderOAuthStatus", login_id=login)
    async with asyncio.timeout(8):
        while await sql(signing, "select 1 from provider_logins where id = $1", login):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_restart_between_code_and_exchange(signing: Signing) -> None:
    signing.oauth.answer()
    c = signing.account()
    login, _ = await begun(c)
    sealed = (await sql(signing, "select sealed from provider_logins where id = $1", login))[0]["sealed"]
    assert login.encode() not in sealed
    # As it stands when the process that took the code has died before it asked the provider.
    (port,) = free_ports(1)
    doomed = await start(signing.stores, GRPC_PORT=str(port), **signing.environment)
    through_doomed = Client(port, "edge", c.id)
    signing.oauth.gate.clear()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 20)
        # All slots of the three are busy, so the code is only kept.
        for other in [signing.account() for _ in range(24)]:
            other_login, _ = await begun(other)
            await other("SubmitProviderOAuthCode", login_id=other_login, code=f"c-{other_login}")
        await until(lambda: len(signing.oauth.forms) >= 24, within=20)
        await through_doomed("SubmitProviderOAuthCode", login_id=login, code=f"c-{login}")
        state = await sql(signing, "select status from provider_logins where id = $1", login)
        assert state[0]["status"] == "submitted"
    finally:
        doomed.kill()
        await doomed.communicate()
        await through_doomed.close()
        signing.oauth.gate.set()
    assert (await ended(c, login))[0] == "completed"


async def test_an_exchange_whose_process_died_fails_clearly(signing: Signing) -> None:
    c = signing.account()
    login, _ = await begun(c)
    long_ago = int(time.time() * 1000) - 60_000
    await sql(
        signing, "update provider_logins set status = 'exchanging', changed_at = $2 where id = $1", login, long_ago
    )
    assert await ended(c, login) == ("failed", "", "Sign-in was interrupted, start again")


async def test_fresh_tokens_are_handed_out_as_they_are(signing: Signing) -> None:
    signing.oauth.answer()
    c = signing.account()
    await signing.subscription(c, expires=int(time.time() * 1000) + 400_000)
    usable = await signing.resolve(c)
    assert (usable.api_key, usable.provider_account) == ("a", "acc-0") and signing.oauth.forms == []


async def test_of_many_workers_one_refreshes(signing: Signing) -> None:
    """The scripted server takes a refresh token once: a second use would be refused."""
    signing.oauth.answer()
    c = signing.account()
    await signing.subscription(c)
    before = (await sql(signing, "select updated_at from secrets where account = $1", c.id))[0]["updated_at"]
    got = await asyncio.gather(*[signing.resolve(c, at=n % 2) for n in range(12)])
    refresh = f"r-{c.id[-8:]}"
    assert {u.api_key for u in got} == {signing.oauth.token(f"{refresh}+")}
    assert {u.provider_account for u in got} == {"acc-1"}
    assert signing.oauth.forms == [{"grant_type": "refresh_token", "client_id": "client-1", "refresh_token": refresh}]
    assert (await sql(signing, "select updated_at from secrets where account = $1", c.id))[0]["updated_at"] > before
    assert await auth_status(c) == "ok"


async def test_a_refresh_outlives_whoever_asked(signing: Signing) -> None:
    signing.oauth.answer()
    c = signing.account()
    await signing.subscription(c)
    signing.oauth.gate.clear()
    try:
        asking = asyncio.create_task(signing.resolve(c))
        await until(lambda: signing.oauth.forms)
        asking.cancel()
        await asyncio.wait([asking])
    finally:
        signing.oauth.gate.set()
    assert (await signing.resolve(c, at=1)).api_key == signing.oauth.token(f"r-{c.id[-8:]}+")
    assert len(signing.oauth.forms) == 1


async def test_a_refused_refresh_needs_a_new_sign_in(signing: Signing) -> None:
    c = signing.account()
    await signing.subscription(c)
    signing.oauth.answer(400)
    hints: list[str] = []
    bus = Bus(signing.stores["nats"], "test")
    await bus.start()
    await bus.subscribe(
        f"seed.v1.{c.id}.>", lambda _, body: hints.append(events_pb2.Event.FromString(body).account_hint.reason)
    )
    await bus.flush()
    worker = signing.client("runs-worker")
    await worker.fails(401, EXPIRED, "ResolveModelProvider", account=c.id, provider="p")
    await until(lambda: hints == ["model-provider-changed"])
    await bus.close()
    assert await auth_status(c) == "needs-login"
    signing.oauth.answer()
    await worker.fails(401, EXPIRED, "ResolveModelProvider", account=c.id, provider="p")
    assert signing.oauth.forms == []
    row = (await sql(signing, "select metadata from secrets where account = $1", c.id))[0]
    assert wire.decode(row["metadata"]) == {"kind": "provider-oauth", "needsReauth": True}
    login, _ = await begun(c)
    await c("SubmitProviderOAuthCode", login_id=login, code=f"c-{login}")
    assert (await ended(c, login))[0] == "completed" and await auth_status(c) == "ok"
    assert (await signing.resolve(c)).api_key == signing.oauth.token(f"c-{login}+")


async def test_a_provider_that_is_away_costs_nobody_the_sign_in(signing: Signing) -> None:
    c, soon = signing.account(), signing.account()
    await signing.subscription(c)
    await signing.subscription(soon, expires=int(time.time() * 1000) + 60_000)
    for number, error in ((503, ""), (429, ""), (400, "invalid_client")):
        signing.oauth.answer(number, error=error)
        text = f"The OpenAI sign-in could not be refreshed: The provider answered HTTP {number}"
        worker = signing.client("runs-worker")
        await worker.fails(502, text, "ResolveModelProvider", account=c.id, provider="p")
        assert (await signing.resolve(soon)).api_key == "a"
    assert await auth_status(c) == "ok"
    signing.oauth.answer()
    assert (await signing.resolve(c)).api_key == signing.oauth.token(f"r-{c.id[-8:]}+")


def refused(token: str, *, last: bool = False) -> dict[str, Any]:
    """Fields that say which token was refused."""
    return {"refused_token": hashlib.sha256(token.encode()).digest(), "last_token": last}


async def test_a_refused_token_is_refreshed_once_for_all(signing: Signing) -> None:
    signing.oauth.answer()
    c = signing.account()
    await signing.subscription(c, expires=int(time.time() * 1000) + 4_000_000)
    got = await asyncio.gather(*[signing.resolve(c, at=n % 2, **refused("a")) for n in range(12)])
    new = signing.oauth.token(f"r-{c.id[-8:]}+")
    assert {u.api_key for u in got} == {new} and len(signing.oauth.forms) == 1
    # A token that is not the stored one any more says nothing about it.
    for old in (refused("a"), refused("a", last=True), refused("b", last=True)):
        assert (await signing.resolve(c, **old)).api_key == new
    assert len(signing.oauth.forms) == 1 and await auth_status(c) == "ok"


async def test_a_renewed_token_that_is_refused_needs_a_new_sign_in(signing: Signing) -> None:
    signing.oauth.answer()
    c = signing.account()
    await signing.subscription(c, expires=int(time.time() * 1000) + 4_000_000)
    new = (await signing.resolve(c, **refused("a"))).api_key
    worker = signing.client("runs-worker")
    fields = {"account": c.id, "provider": "p"}
    await worker.fails(401, EXPIRED, "ResolveModelProvider", **fields, **refused(new, last=True))
    assert await auth_status(c) == "needs-login" and len(signing.oauth.forms) == 1
    await worker.fails(401, EXPIRED, "ResolveModelProvider", **fields)


async def test_a_refused_token_is_not_given_again_when_it_cannot_be_refreshed(signing: Signing) -> None:
    c = signing.account()
    await signing.subscription(c, expires=int(time.time() * 1000) + 4_000_000)
    signing.oauth.answer(503)
    text = "The OpenAI sign-in could not be refreshed: The provider answered HTTP 503"
    worker = signing.client("runs-worker")
    await worker.fails(502, text, "ResolveModelProvider", account=c.id, provider="p", **refused("a"))
    assert (await signing.resolve(c)).api_key == "a" and await auth_status(c) == "ok"


async def test_what_is_no_sign_in_says_so(signing: Signing) -> None:
    c, worker = signing.account(), signing.client("runs-worker")
    await c.provider("p", type="openai", authMode="subscription", secretRefs={"oauth": SECRET})
    text = "Required secret is not configured"
    await worker.fails(400, text, "ResolveModelProvider", account=c.id, provider="p")
    await c.secret(SECRET, b"{}")
    text = "The stored sign-in is not usable, sign in again"
    await worker.fails(400, text, "ResolveModelProvider", account=c.id, provider="p")
