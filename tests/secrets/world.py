"""Calling the service as an account, or as another service."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from seed.audit.v1 import audit_pb2, audit_pb2_grpc
from seed.secrets.v1 import admin_pb2, admin_pb2_grpc
from seed.secrets.v1 import secrets_pb2 as pb
from seed.secrets.v1 import secrets_pb2_grpc as rpc

from libs import wire
from libs.errors import SeedError
from libs.rpc import Peer, TokenSigner
from tests.secrets.fakes import FakeAgent, FakeModelsServer, FakeSessions
from tests.support.hypermedia import FakeHypermediaServer

INTERNAL_KEY = "internal-key-of-the-tests-of-secrets"
_STUBS = (
    rpc.SecretsServiceStub,
    rpc.ProvidersServiceStub,
    rpc.SignInsServiceStub,
    rpc.IdentitiesServiceStub,
    rpc.AuthorizationsServiceStub,
    admin_pb2_grpc.SecretsAdminServiceStub,
    audit_pb2_grpc.AuditServiceStub,
)


class Client:
    """Calls as one service, for one account and signer. Methods are the RPCs, fields the request's."""

    def __init__(self, port: int, service: str, account: str = "", signer: str = "") -> None:
        self._peer = Peer("secrets", f"127.0.0.1:{port}", TokenSigner(service, INTERNAL_KEY))
        self._stubs = [self._peer.stub(stub) for stub in _STUBS]
        self.id, self._signer = account, signer or account
        self.signature = ""
        """What the edge gives with a call of a signed action (libs.signatures.header)."""

    async def __call__(self, method: str, **fields: Any) -> Any:
        (call,) = [getattr(stub, method) for stub in self._stubs if hasattr(stub, method)]
        name = f"{method}Request"
        (module,) = [module for module in (pb, admin_pb2, audit_pb2) if hasattr(module, name)]
        request = getattr(module, name)(**fields)
        return await self._peer.call(call, request, account=self.id, signer=self._signer, signature=self.signature)

    async def fails(self, status: int, text: str, method: str, **fields: Any) -> None:
        """The call must fail so."""
        with pytest.raises(SeedError) as e:
            await self(method, **fields)
        assert (e.value.status, e.value.message) == (status, text)

    async def provider(self, name: str, **config: Any) -> pb.ModelProvider:
        """Set a provider."""
        return (await self("SetModelProvider", name=name, provider=wire.encode(config))).provider

    async def secret(self, name: str, value: bytes, **metadata: Any) -> pb.Secret:
        """Set a secret."""
        more = {"metadata": wire.encode(metadata)} if metadata else {}
        return (await self("SetSecret", name=name, value=value, **more)).secret

    async def models(self, provider: str, **fields: Any) -> list[tuple[str, str]]:
        """Ids and names of a provider's models."""
        answer = await self("ListProviderModels", provider=provider, **fields)
        return [(m.id, m.name) for m in answer.models]

    async def close(self) -> None:
        await self._peer.close()


class World:
    """The running service, its neighbours, and fresh accounts."""

    def __init__(
        self,
        port: int,
        sessions: FakeSessions,
        vendor: FakeModelsServer,
        database_url: str,
        nats_url: str,
        ring: Path,
        hypermedia: FakeHypermediaServer,
    ) -> None:
        self._port, self.sessions, self.vendor = port, sessions, vendor
        self.database_url, self.nats_url = database_url, nats_url
        self.ring, self.hypermedia = ring, hypermedia
        self._clients: list[Client] = []

    def account(self, signer: wire.Key | None = None) -> Client:
        """A fresh account, calling over the edge."""
        return self.client("edge", wire.Key.generate().id, signer.id if signer else "")

    def client(self, service: str, account: str = "", signer: str = "") -> Client:
        """Somebody who calls."""
        client = Client(self._port, service, account, signer)
        self._clients.append(client)
        return client

    def agent(self, owner: Client, **roles: Client) -> str:
        """An agent of the owner; members by role."""
        agent_id = f"agent-{len(self.sessions.agents)}"
        self.sessions.agents[agent_id] = FakeAgent(owner.id, {c.id: role for role, c in roles.items()})
        return agent_id

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        """Rows of a statement, as the service's own role."""
        connection = await asyncpg.connect(self.database_url)
        try:
            return await connection.fetch(statement, *values)
        finally:
            await connection.close()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


async def until(condition: Callable[[], object], within: float = 5.0) -> None:
    """Return once the condition holds; fail when it does not in time."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - conditions of many kinds, none with an event of its own
            await asyncio.sleep(0.01)
