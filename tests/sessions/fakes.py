"""What stands in for secrets and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from seed.runs.v1 import runs_pb2
from seed.secrets.v1 import secrets_pb2

from libs.errors import Unavailable
from libs.rpc import Caller, RpcServer, TokenVerifier


class FakeProviders:
    """ProvidersService: providers by (account, name), signing keys by account."""

    def __init__(self) -> None:
        self.providers: dict[tuple[str, str], str] = {}
        self.keys: set[tuple[str, str]] = set()

    async def CheckReferences(
        self, request: secrets_pb2.CheckReferencesRequest, caller: Caller
    ) -> secrets_pb2.CheckReferencesResponse:
        assert caller.service == "sessions"
        missing = [key for key in request.signing_keys if (request.account, key) not in self.keys]
        kind = self.providers.get((request.account, request.provider))
        return secrets_pb2.CheckReferencesResponse(provider_type=kind, missing_signing_keys=missing)


class FakeRunsService:
    """RunsService: remembers what it was told. `away` makes it refuse; `statuses` says what became of a run."""

    def __init__(self) -> None:
        self.away = False
        self.statuses: dict[str, str] = {}
        self.started: list[runs_pb2.StartTurnRequest] = []
        self.detached: list[tuple[str, str]] = []

    async def StartTurn(self, request: runs_pb2.StartTurnRequest, caller: Caller) -> runs_pb2.StartTurnResponse:
        assert caller.service == "sessions"
        if self.away:
            raise Unavailable("away")
        self.started.append(request)
        return runs_pb2.StartTurnResponse(status=self.statuses.get(request.turn.run_id, "queued"))

    async def DetachRuns(self, request: runs_pb2.DetachRunsRequest, caller: Caller) -> runs_pb2.DetachRunsResponse:
        assert caller.service == "sessions"
        if self.away:
            raise Unavailable("away")
        kind = request.WhichOneof("subject") or ""
        self.detached.append((kind, getattr(request, kind)))
        return runs_pb2.DetachRunsResponse()

    def starts(self, run_id: str) -> int:
        """How often a run was announced."""
        return sum(request.turn.run_id == run_id for request in self.started)


class Neighbours:
    """Both of them on one gRPC listener each."""

    def __init__(self, key: str) -> None:
        self.providers, self.runs = FakeProviders(), FakeRunsService()
        self._secrets_server = RpcServer(TokenVerifier("secrets", key), host="127.0.0.1", port=0)
        self._runs_server = RpcServer(TokenVerifier("runs", key), host="127.0.0.1", port=0)
        providers = secrets_pb2.DESCRIPTOR.services_by_name["ProvidersService"]
        self._secrets_server.add(providers, self.providers)
        self._runs_server.add(runs_pb2.DESCRIPTOR.services_by_name["RunsService"], self.runs)

    @property
    def ports(self) -> tuple[int, int]:
        """Ports of secrets and of runs."""
        return self._secrets_server.port, self._runs_server.port

    @property
    def _servers(self) -> Iterable[RpcServer]:
        return self._secrets_server, self._runs_server

    async def start(self) -> None:
        """Serve."""
        await asyncio.gather(*(server.start() for server in self._servers))

    async def stop(self) -> None:
        """Stop serving."""
        await asyncio.gather(*(server.stop(0.1) for server in self._servers))
