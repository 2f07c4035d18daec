"""What stands in for secrets, runs, memory and triggers."""

from __future__ import annotations

import asyncio
from typing import Any

from seed.memory.v1 import memory_pb2
from seed.runs.v1 import runs_pb2
from seed.secrets.v1 import secrets_pb2
from seed.triggers.v1 import triggers_pb2

from libs.errors import Unavailable
from libs.rpc import Caller, RpcServer, TokenVerifier


class FakeProviders:
    """ProvidersService: providers by (account, name), signing keys by account."""

    def __init__(self) -> None:
        self.providers: dict[tuple[str, str], str] = {}
        self.keys: set[tuple[str, str]] = set()
        self.accounts: dict[str, str] = {}
        """Account ids of signing keys, by their names."""

    async def CheckReferences(
        self, request: secrets_pb2.CheckReferencesRequest, caller: Caller
    ) -> secrets_pb2.CheckReferencesResponse:
        assert caller.service == "sessions"
        missing = [key for key in request.signing_keys if (request.account, key) not in self.keys]
        kind = self.providers.get((request.account, request.provider))
        accounts = {key: self.accounts[key] for key in request.signing_keys if key in self.accounts}
        return secrets_pb2.CheckReferencesResponse(
            provider_type=kind, missing_signing_keys=missing, signing_accounts=accounts
        )


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


class FakeDrops:
    """DropAgent of a service that keeps something for agents. `away` makes it refuse."""

    def __init__(self, answer: Any) -> None:
        self.away = False
        self.dropped: list[str] = []
        self._answer = answer

    async def DropAgent(self, request: Any, caller: Caller) -> Any:
        assert caller.service == "sessions"
        if self.away:
            raise Unavailable("away")
        self.dropped.append(request.agent_id)
        return self._answer()


class FakeTriggers(FakeDrops):
    """TriggersService, as far as sessions needs it. `refuses` is what it raises for default triggers."""

    def __init__(self) -> None:
        super().__init__(triggers_pb2.DropAgentResponse)
        self.greeted: list[triggers_pb2.CreateDefaultTriggerRequest] = []
        self.refuses: Exception | None = None

    async def CreateDefaultTrigger(
        self, request: triggers_pb2.CreateDefaultTriggerRequest, caller: Caller
    ) -> triggers_pb2.CreateDefaultTriggerResponse:
        assert caller.service == "sessions" and caller.account == request.owner
        if self.refuses is not None:
            raise self.refuses
        self.greeted.append(request)
        return triggers_pb2.CreateDefaultTriggerResponse()


class Neighbours:
    """All of them, on one gRPC listener each."""

    def __init__(self, key: str) -> None:
        self.providers, self.runs = FakeProviders(), FakeRunsService()
        self.memory = FakeDrops(memory_pb2.DropAgentResponse)
        self.triggers = FakeTriggers()
        self._servers: dict[str, RpcServer] = {}
        for name, proto, service, fake in (
            ("secrets", secrets_pb2, "ProvidersService", self.providers),
            ("runs", runs_pb2, "RunsService", self.runs),
            ("memory", memory_pb2, "MemoryService", self.memory),
            ("triggers", triggers_pb2, "TriggersService", self.triggers),
        ):
            server = self._servers[name] = RpcServer(TokenVerifier(name, key), host="127.0.0.1", port=0)
            server.add(proto.DESCRIPTOR.services_by_name[service], fake)

    @property
    def addresses(self) -> dict[str, str]:
        """Where each of them is, by the variable that says so."""
        return {
            f"SEED_AGENTS_{name.upper()}_ADDR": f"127.0.0.1:{server.port}" for name, server in self._servers.items()
        }

    async def start(self) -> None:
        """Serve."""
        await asyncio.gather(*(server.start() for server in self._servers.values()))

    async def stop(self) -> None:
        """Stop serving."""
        await asyncio.gather(*(server.stop(0.1) for server in self._servers.values()))
