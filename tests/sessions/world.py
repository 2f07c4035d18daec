"""Calling the service as an account, or as another service, and hearing what it tells."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from seed.audit.v1 import audit_pb2, audit_pb2_grpc
from seed.events.v1 import events_pb2
from seed.sessions.v1 import (
    access_pb2,
    access_pb2_grpc,
    agents_pb2,
    agents_pb2_grpc,
    attachments_pb2,
    attachments_pb2_grpc,
    members_pb2,
    members_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
    threads_pb2,
    threads_pb2_grpc,
    triggered_pb2,
    triggered_pb2_grpc,
    turns_pb2,
    turns_pb2_grpc,
    user_actions_pb2,
    user_actions_pb2_grpc,
)

from libs import wire
from libs.errors import SeedError
from libs.events import Bus, account_subject
from libs.rpc import Peer, TokenSigner
from tests.sessions.fakes import Neighbours

INTERNAL_KEY = "internal-key-of-the-tests-of-sessions"
NIL = "00000000-0000-4000-8000-000000000000"

_SERVICES = (
    (access_pb2, access_pb2_grpc.AccessServiceStub),
    (agents_pb2, agents_pb2_grpc.AgentsServiceStub),
    (audit_pb2, audit_pb2_grpc.AuditServiceStub),
    (attachments_pb2, attachments_pb2_grpc.AttachmentsServiceStub),
    (members_pb2, members_pb2_grpc.MembersServiceStub),
    (sessions_pb2, sessions_pb2_grpc.SessionsServiceStub),
    (turns_pb2, turns_pb2_grpc.TurnsServiceStub),
    (threads_pb2, threads_pb2_grpc.ThreadsServiceStub),
    (triggered_pb2, triggered_pb2_grpc.TriggeredServiceStub),
    (user_actions_pb2, user_actions_pb2_grpc.UserActionsServiceStub),
)


async def until(condition: Callable[[], Any], limit_s: float = 10.0) -> Any:
    """Wait for a condition; returns what made it true."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while not (found := condition()):
        assert loop.time() < end, "condition not met in time"
        await asyncio.sleep(0.01)
    return found


def said(text: str, **more: Any) -> bytes:
    """Content of a message with one text."""
    return wire.encode([{"type": "text", "text": text, **more}])


def message(text: str, role: str = "assistant", **more: Any) -> bytes:
    """JSON of a message event."""
    return json.dumps({"type": "message", "role": role, "content": text, **more}).encode()


class Client:
    """Calls as one service, for one account. Methods are the RPCs, fields the request's."""

    def __init__(self, port: int, service: str, account: str = "") -> None:
        self._peer = Peer("sessions", f"127.0.0.1:{port}", TokenSigner(service, INTERNAL_KEY))
        self._methods = {
            method.name: (getattr(self._peer.stub(stub), method.name), getattr(module, method.input_type.name))
            for module, stub in _SERVICES
            for service in module.DESCRIPTOR.services_by_name.values()
            for method in service.methods
        }
        self.id = account
        self._sent = 0

    async def __call__(self, method: str, /, **fields: Any) -> Any:
        call, request = self._methods[method]
        return await self._peer.call(call, request(**fields), account=self.id, signer=self.id)

    async def send(self, method: str, requests: Iterable[Any]) -> Any:
        """Call a method that takes a stream of requests."""
        call, _ = self._methods[method]
        return await self._peer.send(call, requests, account=self.id, signer=self.id)

    def stream(self, method: str, **fields: Any) -> Any:
        """Call a method that answers with a stream; a context manager that gives it."""
        call, request = self._methods[method]
        return self._peer.stream(call, request(**fields), account=self.id, signer=self.id)

    async def fails(self, status: int, text: str, method: str, /, **fields: Any) -> None:
        """The call must fail so."""
        with pytest.raises(SeedError) as e:
            await self(method, **fields)
        assert (e.value.status, e.value.message) == (status, text), (e.value.status, e.value.message)

    def definition(self, **more: Any) -> dict[str, Any]:
        """A definition that passes every rule."""
        return {"name": "Stub agent", "systemPrompt": "Be brief.", "modelProvider": "stub", "model": "stub-1", **more}

    async def agent(self, **more: Any) -> str:
        """A new agent."""
        return (await self("CreateAgent", definition=wire.encode(self.definition(**more)))).agent_id

    async def session(self, agent_id: str, **fields: Any) -> str:
        """A new session."""
        return (await self("CreateSession", agent_id=agent_id, **fields)).session_id

    async def say(self, session_id: str, text: str = "hi", **fields: Any) -> Any:
        """Send a message, signed like no other."""
        self._sent += 1
        key = hashlib.sha256(f"{self.id} {self._sent} {uuid.uuid4()}".encode()).digest()
        fields.setdefault("content", said(text))
        return await self("MessageSession", session_id=session_id, **{"signature_hash": key, **fields})

    async def events(self, session_id: str) -> list[dict[str, Any]]:
        """Payloads of the log."""
        got = await self("GetSession", session_id=session_id, without_prompt=True)
        assert [event.seq for event in got.events] == list(range(1, len(got.events) + 1)), "gapless from 1"
        return [json.loads(event.payload) for event in got.events]

    async def get(self, session_id: str) -> Any:
        """The session without its log."""
        return (await self("GetSession", session_id=session_id)).session

    async def close(self) -> None:
        await self._peer.close()


class Ears:
    """Events of one account, in the order they were published."""

    def __init__(self) -> None:
        self.events: list[events_pb2.Event] = []

    def hear(self, _: str, body: bytes) -> None:
        self.events.append(events_pb2.Event.FromString(body))

    def kinds(self) -> list[str]:
        """`session_changed`, …; hints as their reason."""
        kinds = [event.WhichOneof("body") or "" for event in self.events]
        return [e.account_hint.reason if k == "account_hint" else k for k, e in zip(kinds, self.events, strict=True)]

    async def until(self, *kinds: str) -> list[events_pb2.Event]:
        """Wait until exactly these were told; forget and return them."""
        await until(lambda: len(self.events) >= len(kinds), 3)
        assert self.kinds() == list(kinds)
        heard, self.events[:] = list(self.events), []
        return heard


class World:
    """The running service, its neighbours, and fresh accounts."""

    def __init__(
        self,
        port: int,
        bus: Bus,
        neighbours: Neighbours,
        database_url: str,
        blobs: Path,
    ) -> None:
        self._port, self._bus = port, bus
        self.providers, self.runs = neighbours.providers, neighbours.runs
        self.memory, self.triggers = neighbours.memory, neighbours.triggers
        self.database_url, self.blobs = database_url, blobs
        self._clients: list[Client] = []
        self.runner = self.client("runs-worker")

    def account(self) -> Client:
        """A fresh account with the provider `stub`, calling over the edge."""
        account = wire.Key.generate().id
        self.providers.providers[account, "stub"] = "custom"
        return self.client("edge", account)

    def client(self, service: str, account: str = "") -> Client:
        """Somebody who calls."""
        client = Client(self._port, service, account)
        self._clients.append(client)
        return client

    async def member(self, owner: Client, agent_id: str, role: str = "writer", *, accept: bool = True) -> Client:
        """An account that was invited, and has joined unless told not to."""
        member = self.account()
        await owner("InviteAgentCollaborator", agent_id=agent_id, account_id=member.id, role=role)
        if accept:
            await member("AcceptAgentInvite", agent_id=agent_id)
        return member

    async def arrived(self) -> bool:
        """Wait until all that had reached the bus before this call is heard here."""
        return await self._bus.flush()

    async def begin(self, run_id: str, attempt: int = 1, **fields: Any) -> Any:
        """BeginTurn as a worker."""
        return await self.runner("BeginTurn", run_id=run_id, attempt=attempt, **fields)

    async def finish(self, run_id: str, *texts: str, attempt: int = 1, status: str = "succeeded", **fields: Any) -> Any:
        """FinishTurn as a worker, with assistant messages."""
        events = [turns_pb2.NewEvent(step=f"text:{i}", payload=message(text)) for i, text in enumerate(texts)]
        fields.setdefault("events", events)
        answer = await self.runner("FinishTurn", run_id=run_id, attempt=attempt, status=status, **fields)
        return answer.outcome

    async def answer(self, turn: Any, text: str = "ok") -> Any:
        """A whole turn."""
        await self.begin(turn.run_id)
        return await self.finish(turn.run_id, text)

    async def ears(self, account: str) -> Ears:
        """Listen to an account from now on: what was told before has been published and forgotten."""
        deadline = asyncio.get_running_loop().time() + 5
        while await self.sql("SELECT 1 FROM outbox WHERE subject LIKE $1", f"seed.v1.{account}.%"):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)
        ears = Ears()
        await self._bus.subscribe(account_subject(account), ears.hear)
        assert await self._bus.flush()
        return ears

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        """Look at the rows, or make some that no call makes yet."""
        connection = await asyncpg.connect(self.database_url)
        try:
            return await connection.fetch(statement, *values)
        finally:
            await connection.close()

    async def close(self) -> None:
        """Hang up."""
        for client in self._clients:
            await client.close()
