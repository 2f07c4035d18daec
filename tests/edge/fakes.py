"""Tiny services behind the edge: they keep just enough state in memory for the edge to be tested against."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from seed.events.v1 import events_pb2
from seed.runs.v1 import runs_pb2
from seed.secrets.v1 import secrets_pb2
from seed.sessions.v1 import access_pb2, agents_pb2, attachments_pb2, members_pb2, sessions_pb2, types_pb2

from libs import events
from libs.errors import NotFound
from libs.rpc import Caller, RpcServer, TokenVerifier
from libs.wire import encode

KEY = "k" * 40


def agent(owner: str, agent_id: str | None = None, **more: Any) -> types_pb2.Agent:
    fields: dict[str, Any] = {
        "id": agent_id or str(uuid.uuid4()),
        "account": owner,
        "definition": encode({"name": "A", "systemPrompt": [], "modelProvider": "p", "model": "m"}),
        "status": "idle",
        "created_at": 1,
        "updated_at": 1,
        "version": 1,
    }
    return types_pb2.Agent(**(fields | more))


class FakeSessions:
    """Agents, sessions and their logs; access by a table. `calls` counts requests by method."""

    def __init__(self) -> None:
        self.agents: dict[str, types_pb2.Agent] = {}
        self.members: dict[tuple[str, str], str] = {}
        self.sessions: dict[str, types_pb2.Session] = {}
        self.logs: dict[str, list[types_pb2.SessionEvent]] = {}
        self.calls: dict[str, int] = {}
        self.seen: list[tuple[str, Any, Caller]] = []
        self.turns: dict[str, types_pb2.TurnStart] = {}
        self.fail: Exception | None = None
        self.file = self.given = self.left = 0

    def _note(self, name: str, request: Any, caller: Caller) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        self.seen.append((name, request, caller))
        if self.fail is not None:
            raise self.fail

    def role(self, account: str, agent_id: str) -> tuple[str, bool]:
        a = self.agents.get(agent_id)
        if a is None:
            return "", False
        if a.account == account:
            return "owner", True
        member = self.members.get((account, agent_id), "")
        if member == "reader" and a.public_chat:
            return "chatter", True
        if member:
            return member, True
        return (("chatter" if a.public_chat else "reader"), False) if a.public_read else ("", False)

    def add_agent(self, owner: str, **more: Any) -> types_pb2.Agent:
        a = agent(owner, **more)
        self.agents[a.id] = a
        return a

    def add_session(self, a: types_pb2.Agent, **more: Any) -> types_pb2.Session:
        fields: dict[str, Any] = {"status": "idle", "created_at": 1, "updated_at": 1, "version": 1}
        s = types_pb2.Session(id=str(uuid.uuid4()), account=a.account, agent_id=a.id, **(fields | more))
        self.sessions[s.id] = s
        self.logs[s.id] = []
        return s

    def append(self, session_id: str, payload: bytes = b'{"type":"message"}') -> types_pb2.SessionEvent:
        log = self.logs[session_id]
        e = types_pb2.SessionEvent(
            id=str(uuid.uuid4()), session_id=session_id, seq=len(log) + 1, payload=payload, created_at=5
        )
        log.append(e)
        return e

    def change(self, session_id: str, **more: Any) -> types_pb2.Session:
        s = self.sessions[session_id]
        s.version += 1
        s.updated_at += 1
        for name, value in more.items():
            setattr(s, name, value)
        copy = types_pb2.Session()
        copy.CopyFrom(s)
        return copy

    # AccessService

    async def ResolveAccess(self, request: Any, caller: Caller) -> Any:
        self._note("ResolveAccess", request, caller)
        noun, agent_id = "Agent", request.agent_id
        if request.WhichOneof("subject") == "session_id":
            noun = "Session"
            s = self.sessions.get(request.session_id)
            agent_id = s.agent_id if s else ""
        role, member = self.role(caller.account, agent_id)
        if not role:
            raise NotFound(f"{request.noun or noun} not found")
        return access_pb2.ResolveAccessResponse(
            agent_id=agent_id, owner=self.agents[agent_id].account, role=role, member=member
        )

    async def ListMemberships(self, request: Any, caller: Caller) -> Any:
        self._note("ListMemberships", request, caller)
        return access_pb2.ListMembershipsResponse(
            memberships=[
                access_pb2.Membership(agent_id=agent_id, owner=self.agents[agent_id].account, role=role)
                for (account, agent_id), role in self.members.items()
                if account == caller.account
            ]
        )

    # AgentsService

    async def ListAgents(self, request: Any, caller: Caller) -> Any:
        self._note("ListAgents", request, caller)
        return agents_pb2.ListAgentsResponse(agents=[a for a in self.agents.values() if a.account == caller.account])

    async def CreateAgent(self, request: Any, caller: Caller) -> Any:
        self._note("CreateAgent", request, caller)
        return agents_pb2.CreateAgentResponse(agent_id=self.add_agent(caller.account).id)

    # MembersService

    async def SetAgentPublicRead(self, request: Any, caller: Caller) -> Any:
        self._note("SetAgentPublicRead", request, caller)
        return members_pb2.SetAgentPublicReadResponse(agent=self.agents[request.agent_id])

    # SessionsService

    async def CreateSession(self, request: Any, caller: Caller) -> Any:
        self._note("CreateSession", request, caller)
        return sessions_pb2.CreateSessionResponse(session_id=self.add_session(self.agents[request.agent_id]).id)

    async def GetSession(self, request: Any, caller: Caller) -> Any:
        self._note("GetSession", request, caller)
        s = self.sessions.get(request.session_id)
        role, _ = self.role(caller.account, s.agent_id) if s else ("", False)
        if s is None or not role:
            raise NotFound("Session not found")
        log = self.logs[s.id]
        after = request.after_seq if request.HasField("after_seq") else 0
        return sessions_pb2.GetSessionResponse(
            session=s, events=[e for e in log if e.seq > after], access_role=role, last_seq=len(log)
        )

    async def GetHeads(self, request: Any, caller: Caller) -> Any:
        self._note("GetHeads", request, caller)
        heads = [
            sessions_pb2.SessionHead(session_id=i, last_seq=len(self.logs[i]), version=self.sessions[i].version)
            for i in request.session_ids
            if i in self.sessions
        ]
        return sessions_pb2.GetHeadsResponse(heads=heads)

    async def MessageSession(self, request: Any, caller: Caller) -> Any:
        self._note("MessageSession", request, caller)
        s = self.sessions.get(request.session_id)
        if s is None:
            raise NotFound("Session not found")
        turn = types_pb2.TurnStart(
            run_id=str(uuid.uuid4()), session_id=s.id, agent_id=s.agent_id, owner=s.account, title="t", origin="user"
        )
        self.turns[turn.run_id] = turn
        return sessions_pb2.MessageSessionResponse(turn=turn)


class FakeRuns:
    """Runs and their outcomes. With a bus, a started turn with an outcome in `answers` is announced at once."""

    def __init__(self) -> None:
        self.runs: dict[str, runs_pb2.Run] = {}
        self.journals: dict[str, list[runs_pb2.JournalEntry]] = {}
        self.outcomes: dict[str, types_pb2.TurnOutcome] = {}
        self.started: list[tuple[str, str]] = []
        self.answer: types_pb2.TurnOutcome | None = None
        self.tell = True
        self.bus: events.Bus | None = None
        self.asked = 0

    async def StartTurn(self, request: Any, caller: Caller) -> Any:
        run_id = request.turn.run_id
        self.started.append((run_id, request.notify))
        if self.answer is not None:
            self.settle(run_id, self.answer, request.notify)
        return runs_pb2.StartTurnResponse(status="queued")

    def settle(self, run_id: str, outcome: types_pb2.TurnOutcome, notify: str) -> None:
        outcome.run_id = run_id
        self.outcomes[run_id] = outcome
        if self.tell and self.bus is not None and notify:
            self.bus.publish(notify, events_pb2.TurnSettled(outcome=outcome).SerializeToString())

    async def GetTurnOutcome(self, request: Any, caller: Caller) -> Any:
        self.asked += 1
        return runs_pb2.GetTurnOutcomeResponse(outcome=self.outcomes.get(request.run_id))

    async def GetRun(self, request: Any, caller: Caller) -> Any:
        if request.run_id not in self.runs:
            raise NotFound("Run not found")
        return runs_pb2.GetRunResponse(run=self.runs[request.run_id], access_role="owner")

    async def ListRuns(self, request: Any, caller: Caller) -> Any:
        if request.root_run_id not in self.runs:
            raise NotFound("Run not found")
        found = [r for r in self.runs.values() if r.root_run_id == request.root_run_id]
        return runs_pb2.ListRunsResponse(runs=found, access_role="owner", agent_id=found[0].agent_id)

    async def GetRunJournal(self, request: Any, caller: Caller) -> Any:
        entries = self.journals.get(request.run_id, [])
        return runs_pb2.GetRunJournalResponse(
            run_id=request.run_id, entries=[e for e in entries if e.seq > request.after_seq]
        )


class FakeSecrets:
    """Providers, secrets and authorized signers."""

    def __init__(self) -> None:
        self.authorized: set[tuple[str, str]] = set()
        self.seen: list[tuple[str, Any, Caller]] = []

    async def CheckSigner(self, request: Any, caller: Caller) -> Any:
        return secrets_pb2.CheckSignerResponse(authorized=(request.account_id, request.signer_id) in self.authorized)

    async def SetSecret(self, request: Any, caller: Caller) -> Any:
        self.seen.append(("SetSecret", request, caller))
        stored = secrets_pb2.Secret(
            id="s1", name=request.name.strip(), metadata=request.metadata, created_at=1, updated_at=1
        )
        return secrets_pb2.SetSecretResponse(secret=stored)


class FakeAttachments:
    """One attachment of `sessions.file` bytes, of which `sessions.given` come; `sessions.left` counts ended streams."""

    def __init__(self, sessions: FakeSessions) -> None:
        self._s = sessions

    async def ReadAttachment(self, request: Any, caller: Caller) -> AsyncGenerator[Any, None]:
        self._s._note("ReadAttachment", request, caller)
        attachment = attachments_pb2.Attachment(id="a", session_id=request.session_id, name="n", size=self._s.file)
        try:
            yield attachments_pb2.ReadAttachmentResponse(attachment=attachment)
            for at in range(0, self._s.given, 1 << 20):
                yield attachments_pb2.ReadAttachmentResponse(content=b"x" * min(1 << 20, self._s.given - at))
        finally:
            self._s.left += 1

    async def UploadAttachment(self, requests: AsyncIterator[Any], caller: Caller) -> Any:
        sizes = [len(request.content) async for request in requests]
        self._s._note("UploadAttachment", sizes, caller)
        return attachments_pb2.UploadAttachmentResponse(attachment=attachments_pb2.Attachment(id="a", size=sum(sizes)))


async def serve_fakes(sessions: FakeSessions, runs: FakeRuns, secrets: FakeSecrets) -> dict[str, RpcServer]:
    """Serve all three; keys are the services' names."""
    from seed.runs.v1 import runs_pb2 as r
    from seed.secrets.v1 import secrets_pb2 as s

    parts: dict[str, list[tuple[Any, Any]]] = {
        "sessions": [
            (access_pb2.DESCRIPTOR.services_by_name["AccessService"], sessions),
            (agents_pb2.DESCRIPTOR.services_by_name["AgentsService"], sessions),
            (attachments_pb2.DESCRIPTOR.services_by_name["AttachmentsService"], FakeAttachments(sessions)),
            (members_pb2.DESCRIPTOR.services_by_name["MembersService"], sessions),
            (sessions_pb2.DESCRIPTOR.services_by_name["SessionsService"], sessions),
        ],
        "runs": [(r.DESCRIPTOR.services_by_name["RunsService"], runs)],
        "secrets": [(service, secrets) for service in s.DESCRIPTOR.services_by_name.values()],
    }
    servers = {}
    for name, services in parts.items():
        server = RpcServer(TokenVerifier(name, KEY), host="127.0.0.1", port=0)
        for descriptor, servicer in services:
            server.add(descriptor, servicer)
        await server.start()
        servers[name] = server
    return servers
