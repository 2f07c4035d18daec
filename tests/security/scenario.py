"""A day in the life of an account, with everything that can go wrong in it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import asyncpg

from libs.client import ApiError, Client, ClientError, Key
from libs.protocol.agents import AgentDefinition
from libs.protocol.secrets import ModelProviderConfig
from libs.stack import Stack
from libs.stack.scripted import MODEL, Calls, Fail, Reply, Say, ScriptedProvider
from tests.fuzz.connection import Connection
from tests.security.markers import Marker, marker
from tests.support.kit import World, text, until

TABLES = ("sessions.session_events", "secrets.secrets", "runs.runs")
"""Rows of these are refused for a while."""


@dataclass
class Handed:
    """What is handed to the system: `secrets` must be found nowhere, `texts` where conversations are kept."""

    api_key: Marker = field(default_factory=lambda: marker("api key", "sk-"))
    secret: Marker = field(default_factory=lambda: marker("secret"))
    seed: Marker = field(default_factory=lambda: Marker("seed", Key.generate().seed))
    access: Marker = field(default_factory=lambda: marker("access token"))
    refresh: Marker = field(default_factory=lambda: marker("refresh token"))
    code: Marker = field(default_factory=lambda: marker("authorization code"))
    message: Marker = field(default_factory=lambda: marker("message"))
    reply: Marker = field(default_factory=lambda: marker("reply"))
    tool_input: Marker = field(default_factory=lambda: marker("tool input"))
    tool_output: Marker = field(default_factory=lambda: marker("tool output"))
    file: Marker = field(default_factory=lambda: marker("attachment"))
    prompt: Marker = field(default_factory=lambda: marker("prompt"))
    deleted: Marker = field(default_factory=lambda: marker("deleted message"))

    @property
    def secrets(self) -> list[Marker]:
        """What nobody may ever see again."""
        return [self.api_key, self.secret, self.seed, self.access, self.refresh, self.code]

    @property
    def texts(self) -> list[Marker]:
        """What belongs to the account's conversations."""
        return [self.message, self.reply, self.tool_input, self.tool_output, self.file, self.prompt, self.deleted]


@contextmanager
def openai(handed: Handed) -> Iterator[str]:
    """Gives the tokens for the code at `/token`, and refuses all else, each time with what it was asked with.

    Below `/codex` a model is asked: the first request is no good, then no token is.
    """
    refusals = iter((400, *[401] * 100))

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path.startswith("/codex"):
                echo = {"error": {"message": f"{self.headers['Authorization']} {handed.message.text} {sent[:200]}"}}
                self._answer(next(refusals), echo)
                return
            form = parse_qs(sent)
            good = form.get("code") == [handed.code.text]
            tokens = {
                "access_token": f"head.{_claims()}.{handed.access.text}",
                "refresh_token": handed.refresh.text,
                "expires_in": 3600,
            }
            refusal = {"error": "invalid_grant", "error_description": f"no such code: {form} {handed.code.text}"}
            self._answer(200 if good else 400, tokens if good else refusal)

        def _answer(self, status: int, said: dict[str, Any]) -> None:
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _claims() -> str:
    claims = {"https://api.openai.com/auth": {"chatgpt_account_id": "acc-1"}}
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


class Scenario:
    """Played on a stack with one edge. Steps build on each other."""

    def __init__(self, stack: Stack, world: World, provider: ScriptedProvider, handed: Handed) -> None:
        self._stack, self._provider, self._handed = stack, provider, handed
        self.client: Client = world.client()
        self.agent = ""
        self.statuses: list[int] = []

    async def play(self) -> None:
        """All of it."""
        await self._set_up()
        await self._converse()
        await self._provider_fails()
        await self._ask_wrongly()
        await self._sign_in()
        await self._parts_fail()
        await self._delete()

    async def _set_up(self) -> None:
        h, client = self._handed, self.client
        await client.set_secret("key", h.api_key.value, {"for": "the provider"})
        await client.set_secret("other", h.secret.value)
        refs = {"apiKey": "key"}
        config = ModelProviderConfig(type="custom", base_url=self._provider.url, secret_refs=refs)
        await client.set_provider("scripted", config)
        await client.set_provider("google", ModelProviderConfig(type="google", secret_refs=refs))
        await client.call("ImportSigningIdentity", seed=h.seed.value, label="imported", clientRequestId="r-1")
        definition = AgentDefinition(
            name="Agent", system_prompt=h.prompt.text, model_provider="scripted", model=MODEL, signing_keys=[]
        )
        self.agent = await client.create_agent(definition)

    async def _converse(self) -> None:
        h, client = self._handed, self.client
        session = await client.create_session(self.agent)
        held = await client.call("UploadSessionAttachment", sessionId=session, name="a.txt", content=h.file.value)
        step = {"id": "1", "label": h.tool_input.text, "status": "running"}
        brief = {"title": "Part", "brief": f"work: {h.tool_input.text}"}
        self._say(Calls([("plan", {"steps": [step]})]), Calls([("delegate", brief)], before=h.reply.text))
        self._say(h.tool_output.text, Say((h.reply.text, " and", " done")))
        content = text(h.message.text, contextLines=[h.message.text])
        content.append({"type": "attachment", "id": held.attachment.id})
        await client.send({"_": "MessageSession", "sessionId": session, "content": text(h.message.text)})
        with contextlib.suppress(ApiError):
            await client.send({"_": "MessageSession", "sessionId": session, "content": content})
        await self._rests(session)
        assert h.tool_output.text in repr((await client.session(session)).events)

    async def _provider_fails(self) -> None:
        h, client = self._handed, self.client
        echo = f"{h.api_key.text} {h.message.text}"
        failures: list[Reply] = [
            Fail(401, f"Incorrect API key provided: {echo}"),
            Fail(400, f"bad request: {echo}"),
            Fail(500, echo),
            Say((h.reply.text, h.reply.text), cut=True),
        ]
        for failure in failures:
            session = await client.create_session(self.agent)
            self._provider.reply = failure
            await self._refused("MessageSession", sessionId=session, content=text(h.message.text))
            await self._rests(session)
        wrong = [("plan", f'{{"steps": "{h.tool_input.text}'), (h.tool_input.text, {"a": h.tool_input.text})]
        self._say(Calls(wrong), Calls([("plan", {"steps": h.tool_input.text})]))
        self._provider.reply = h.reply.text
        session = await client.create_session(self.agent)
        await self._refused("MessageSession", sessionId=session, content=text(h.message.text))
        await self._rests(session)
        await self._refused("ListProviderModels", provider="google")
        session = await client.create_session(self.agent)
        await self._refused(
            "UpdateSession", sessionId=session, modelOverride={"provider": "google", "model": "gemini-2.5-flash"}
        )
        await self._refused("MessageSession", sessionId=session, content=text(h.message.text))

    async def _ask_wrongly(self) -> None:
        h, session = self._handed, await self.client.create_session(self.agent)
        everything = " ".join(m.text for m in (h.api_key, h.secret, h.access, h.message))
        seed = h.seed.value
        wrong: list[dict[str, Any]] = [
            {"_": "SetSecret", "name": "x" * 300, "value": h.secret.value},
            {"_": "SetSecret", "name": "big", "value": h.secret.value * 3000},
            {"_": "SetSecret", "name": "odd", "value": h.secret.text},
            {"_": "SetSecret", "name": "odd", "value": h.secret.value, "metadata": [h.secret.text]},
            {"_": "SetModelProvider", "name": "p", "provider": {"type": "custom", "baseUrl": f"no url {everything}"}},
            {"_": "SetModelProvider", "name": "p", "provider": everything},
            {"_": "ImportSigningIdentity", "seed": seed[:31]},
            {"_": "ImportSigningIdentity", "seed": seed},
            {"_": "ImportSigningIdentity", "seed": seed, "label": "another", "clientRequestId": "r-1"},
            {"_": "MessageSession", "sessionId": session, "content": [{"type": "image", "text": everything}]},
            {"_": "MessageSession", "sessionId": session, "content": text(h.message.text * 3000)},
            {"_": "MessageSession", "sessionId": everything, "content": text(h.message.text)},
            {"_": "CreateAgent", "definition": {"name": "n", "systemPrompt": [h.prompt.text, everything]}},
            {"_": "GetSession", "sessionId": everything},
            {"_": "SubmitProviderOAuthCode", "loginId": "none", "code": h.code.text},
            {"_": everything},
        ]
        for action in wrong:
            await self._refused(**action)
        good = self.client.signer.sign({"_": "SetSecret", "name": "n", "value": h.secret.value}, b"")
        connection = Connection(self._stack.url)
        for body in (everything.encode(), good[:-9], good[:-1] + bytes((good[-1] ^ 1,)), good + b"\0"):
            self.statuses.append((await connection.ask(body)).status)
        connection.close()
        async with aiohttp.ClientSession() as http:
            for path in ("/api/", "/agents/"):
                async with http.get(f"{self._stack.url}{path}{h.api_key.text}?token={h.access.text}") as answer:
                    self.statuses.append(answer.status)
            async with http.post(f"{self._stack.url}/api/message", data=everything.encode()) as answer:
                self.statuses.append(answer.status)
            async with http.ws_connect(f"{self._stack.url}/agents/ws") as socket:
                await socket.receive()
                for frame in (everything.encode(), good):
                    await socket.send_bytes(frame)
                    await socket.receive()
                await socket.send_str(everything)
                await socket.receive()

    async def _sign_in(self) -> None:
        h, client = self._handed, self.client
        for code in (f"{h.code.text}-not", h.code.text):
            started = await client.call("StartProviderOAuth", providerType="openai")
            state = parse_qs(urlsplit(started.auth_url).query)["state"][0]
            await client.call("SubmitProviderOAuthCode", loginId=started.login_id, code=f"{code}#{state}")
            await until(lambda login=started.login_id: self._signed_in(login), what="the exchange")
        secrets = {"oauth": "openai-subscription-oauth"}
        config = ModelProviderConfig(type="openai", auth_mode="subscription", secret_refs=secrets)
        await client.set_provider("chatgpt", config)
        await client.call("ListProviderModels", provider="chatgpt")
        definition = AgentDefinition(
            name="Agent", system_prompt=h.prompt.text, model_provider="chatgpt", model="gpt-5.5", signing_keys=[]
        )
        agent = await client.create_agent(definition)
        assert await self._chatgpt() == "ok"
        for _ in range(3):
            session = await client.create_session(agent)
            await self._refused("MessageSession", sessionId=session, content=text(h.message.text))
        assert await self._chatgpt() == "needs-login"

    async def _chatgpt(self) -> str:
        providers = (await self.client.call("ListModelProviders")).providers
        return next(str(provider.auth_status) for provider in providers if provider.name == "chatgpt")

    async def _signed_in(self, login: str) -> bool:
        seen = await self.client.call("GetProviderOAuthStatus", loginId=login)
        return seen.status != "pending"

    async def _parts_fail(self) -> None:
        """The database refuses rows, a service is killed, a store is away: 500 and 503."""
        h, session = self._handed, await self.client.create_session(self.agent)
        wanted: list[dict[str, Any]] = [
            {"_": "MessageSession", "sessionId": session, "content": text(h.message.text)},
            {"_": "SetSecret", "name": "other", "value": h.secret.value},
            {"_": "SetSecret", "name": "more", "value": h.api_key.value},
            {"_": "ImportSigningIdentity", "seed": h.seed.value},
        ]
        async with self._rows_refused():
            failed = [await self._once(action) for action in wanted]
            assert 500 in failed
        stack = self._stack
        for process in (stack.process("secrets"), stack.process("sessions"), stack.stores.valkey):
            assert process is not None
            await asyncio.to_thread(process.kill)
            # A message waits for its turn, and that for secrets.
            for action in wanted[process is stack.process("secrets") :]:
                await self._once(action)
            process.start()
            await asyncio.to_thread(process.wait_ready, 60.0)
        await until(lambda: self._answers(), 60.0, "everything is back")
        await self._rests(session)

    async def _delete(self) -> None:
        session = await self.client.create_session(self.agent)
        deleted = self._handed.deleted.text
        step = {"id": "1", "label": deleted, "status": "running"}
        self._say(Calls([("plan", {"title": deleted, "steps": [step]})]), deleted)
        await self.client.message(session, f"keep this: {deleted}")
        await self.client.call("DeleteSession", sessionId=session)

    @asynccontextmanager
    async def _rows_refused(self) -> AsyncIterator[None]:
        connection = await asyncpg.connect(self._stack.stores.database_url)
        for table in TABLES:
            await connection.execute(f"alter table {table} add constraint refused check (false) not valid")
        try:
            yield
        finally:
            for table in TABLES:
                await connection.execute(f"alter table {table} drop constraint refused")
            await connection.close()

    async def _once(self, action: dict[str, Any]) -> int:
        """The status of one request that nobody tries again."""
        connection = Connection(self._stack.url)
        body = self.client.signer.sign(action, self.client.signer.key.principal)
        try:
            reply = await connection.ask(body)
        finally:
            connection.close()
        self.statuses.append(reply.status)
        return reply.status

    async def _answers(self) -> bool:
        try:
            await self.client.set_secret("again", b"x")
        except ClientError:
            return False
        return True

    async def _refused(self, _: str, **fields: Any) -> None:
        try:
            await self.client.send({"_": _, **fields})
        except ApiError as e:
            self.statuses.append(e.status)

    async def _rests(self, session: str) -> None:
        async def probe() -> bool:
            runs = (await self.client.call("ListRuns", sessionId=session)).runs
            return all(run.status in ("succeeded", "failed", "canceled") for run in runs)

        await until(probe, 60.0, "the session at rest")

    def _say(self, *replies: Reply) -> None:
        self._provider.script.extend(replies)
