"""What sessions asks of other services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from seed.memory.v1 import memory_pb2, memory_pb2_grpc
from seed.runs.v1 import runs_pb2, runs_pb2_grpc
from seed.secrets.v1 import secrets_pb2, secrets_pb2_grpc
from seed.sessions.v1 import types_pb2
from seed.triggers.v1 import triggers_pb2, triggers_pb2_grpc

from libs import telemetry
from libs.errors import SeedError
from libs.rpc import Peer
from services.sessions.store.deletions import SESSION_KIND, Deletion, DeletionStore

log = telemetry.get_logger("sessions")

_DETACH_SECONDS = 5.0

Drop = Callable[[Deletion], Awaitable[None]]
"""Tells a service what has been deleted, so that it drops what belongs to it. May be told again; raises SeedError."""


@dataclass(frozen=True, slots=True)
class Found:
    """Type of the provider (None when the owner has none of that name), which signing keys are missing, and the account
    ids of the others by their names, as far as they are known."""

    provider_type: str | None
    missing_keys: list[str]
    signing_accounts: dict[str, str]


class References:
    """What a definition or an override refers to in the owner's secrets."""

    def __init__(self, secrets: Peer) -> None:
        self._secrets, self._stub = secrets, secrets.stub(secrets_pb2_grpc.ProvidersServiceStub)

    async def find(self, owner: str, provider: str, keys: Sequence[str] = ()) -> Found:
        """What the owner has of a provider and of signing keys."""
        request = secrets_pb2.CheckReferencesRequest(account=owner, provider=provider, signing_keys=keys)
        found = await self._secrets.call(self._stub.CheckReferences, request, account=owner, retry=True)
        kind = found.provider_type if found.HasField("provider_type") else None
        return Found(kind, list(found.missing_signing_keys), dict(found.signing_accounts))


class Memory:
    """What memory is told."""

    def __init__(self, memory: Peer) -> None:
        self._memory, self._stub = memory, memory.stub(memory_pb2_grpc.MemoryServiceStub)

    async def drop(self, deletion: Deletion) -> None:
        """Drop the files and tools of a deleted agent."""
        if deletion.kind != SESSION_KIND:
            request = memory_pb2.DropAgentRequest(agent_id=deletion.id, owner=deletion.owner)
            await self._memory.call(self._stub.DropAgent, request, account=deletion.owner, timeout_s=_DETACH_SECONDS)


class Triggers:
    """What triggers is told."""

    def __init__(self, triggers: Peer) -> None:
        self._triggers, self._stub = triggers, triggers.stub(triggers_pb2_grpc.TriggersServiceStub)

    async def drop(self, deletion: Deletion) -> None:
        """Drop the triggers of a deleted agent."""
        if deletion.kind != SESSION_KIND:
            request = triggers_pb2.DropAgentRequest(agent_id=deletion.id)
            await self._triggers.call(self._stub.DropAgent, request, account=deletion.owner, timeout_s=_DETACH_SECONDS)


class Runs:
    """What runs is told: turns to start, and what has been deleted. `others` are told of deletions after it."""

    def __init__(self, runs: Peer, deletions: DeletionStore, *others: Drop) -> None:
        self._runs, self._stub, self._deletions = runs, runs.stub(runs_pb2_grpc.RunsServiceStub), deletions
        self._others = others

    async def start(self, turn: types_pb2.TurnStart) -> str:
        """Create the run of a turn unless there is one; returns the run's status."""
        request = runs_pb2.StartTurnRequest(turn=turn)
        answer = await self._runs.call(self._stub.StartTurn, request, account=turn.owner)
        return answer.status

    async def detach(self, deletion: Deletion) -> bool:
        """End the runs of what was deleted, and all else that belongs to it. False when a service is away: the sweep
        does it then."""
        request = runs_pb2.DetachRunsRequest()
        if deletion.kind == SESSION_KIND:
            request.session_id = deletion.id
        else:
            request.agent_id = deletion.id
        try:
            await self._runs.call(self._stub.DetachRuns, request, account=deletion.owner, timeout_s=_DETACH_SECONDS)
            for drop in self._others:
                await drop(deletion)
            await self._deletions.finished(deletion)
        except SeedError as e:
            log.warning("deletion not finished yet", id=deletion.id, kind=deletion.kind, error=e.message)
            return False
        return True
