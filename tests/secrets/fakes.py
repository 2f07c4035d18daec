"""What stands around the service: a fake of sessions over real gRPC, and a fake vendor over real HTTP."""

import asyncio
import base64
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from seed.sessions.v1 import access_pb2, agents_pb2, types_pb2

from libs import wire
from libs.errors import NotFound
from libs.rpc import Caller, RpcServer, TokenVerifier
from tests.security.collected import SECRET_TOKEN


@dataclass
class FakeAgent:
    """An agent: its owner, the roles of others, its definition."""

    owner: str
    roles: dict[str, str] = field(default_factory=dict)
    definition: dict[str, Any] = field(default_factory=dict)


class FakeSessions:
    """Answers ResolveAccess and GetAgent from `agents`, as the real service words it."""

    def __init__(self, key: str) -> None:
        self.agents: dict[str, FakeAgent] = {}
        self._rpc = RpcServer(TokenVerifier("sessions", key), host="127.0.0.1", port=0)
        self._rpc.add(access_pb2.DESCRIPTOR.services_by_name["AccessService"], self)
        self._rpc.add(agents_pb2.DESCRIPTOR.services_by_name["AgentsService"], self)

    @property
    def port(self) -> int:
        return self._rpc.port

    async def start(self) -> None:
        await self._rpc.start()

    async def stop(self) -> None:
        await self._rpc.stop(0)

    async def ResolveAccess(self, request: Any, caller: Caller) -> access_pb2.ResolveAccessResponse:
        assert caller.service == "secrets" and request.need == "reader"
        agent, role = self._visible(request.agent_id, caller)
        return access_pb2.ResolveAccessResponse(agent_id=request.agent_id, owner=agent.owner, role=role)

    async def GetAgent(self, request: Any, caller: Caller) -> agents_pb2.GetAgentResponse:
        agent, role = self._visible(request.agent_id, caller)
        info = types_pb2.Agent(id=request.agent_id, definition=wire.encode(agent.definition), access_role=role)
        return agents_pb2.GetAgentResponse(agent=info)

    def _visible(self, agent_id: str, caller: Caller) -> tuple[FakeAgent, str]:
        agent = self.agents.get(agent_id)
        role = None if agent is None else "owner" if caller.account == agent.owner else agent.roles.get(caller.account)
        if agent is None or role is None:
            raise NotFound("Agent not found")
        return agent, role


class FakeModelsServer:
    """Answers every GET with `status` and `body`, and notes what it was asked."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.root = ""
        self._runner: web.AppRunner | None = None

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        """What to answer from now on; forgets what was asked."""
        self.status, self.body, self.headers, self.asked = status, body, headers, []

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._get)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.root = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _get(self, request: web.Request) -> web.Response:
        self.asked.append((request.path_qs, {k.lower(): v for k, v in request.headers.items()}))
        return web.Response(status=self.status, body=self.body, headers=self.headers)


class FakeTokenServer:
    """An OAuth token endpoint: answers codes and refresh tokens once each, and notes the forms it was sent.

    `status` other than 200 is answered with `error`; `gate` holds answers back until it is set.
    """

    def __init__(self) -> None:
        self.status, self.error, self.body = 200, "invalid_grant", b""
        self.expires_in: float = 3600
        self.forms: list[dict[str, str]] = []
        self.spent: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""
        self._runner: web.AppRunner | None = None

    def answer(self, status: int = 200, *, error: str = "invalid_grant", body: bytes = b"") -> None:
        """What to answer from now on; forgets what it was sent."""
        self.status, self.error, self.body, self.expires_in, self.forms = status, error, body, 3600, []

    def token(self, name: str) -> str:
        """An access token: a JWT for the account acc-1."""
        claims = {"https://api.openai.com/auth": {"chatgpt_account_id": "acc-1"}, "name": name}
        middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
        return f"head.{middle}.{SECRET_TOKEN}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/oauth/token", self._token)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/oauth/token"

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _token(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.forms.append(form)
        await self.gate.wait()
        grant = form.get("code") or form.get("refresh_token") or ""
        if self.status == 200 and grant in self.spent:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if self.status != 200:
            return web.json_response({"error": self.error}, status=self.status)
        if self.body:
            return web.Response(body=self.body)
        self.spent.add(grant)
        name = f"{grant}+"
        return web.json_response(
            {"access_token": self.token(name), "refresh_token": name, "expires_in": self.expires_in}
        )
