"""Sessions and secrets as runs sees them, over real gRPC: a turn ledger in memory, roles, one provider."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from seed.secrets.v1 import secrets_pb2
from seed.sessions.v1 import access_pb2, turns_pb2, types_pb2

from libs import wire
from libs.errors import Canceled, Forbidden, Invalid, NotFound, StaleAttempt
from libs.rpc import Caller, RpcServer, TokenVerifier
from tests.runs.house import AGENT, INTERNAL_KEY, OWNER, new_id, turn


class FakeServer:
    """A gRPC server that can go away and come back at the same address."""

    def __init__(self, audience: str, *services: Any) -> None:
        self._audience, self._services = audience, services
        self._rpc: RpcServer | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._rpc = RpcServer(TokenVerifier(self._audience, INTERNAL_KEY), host="127.0.0.1", port=self.port)
        for service in self._services:
            self._rpc.add(service, self)
        await self._rpc.start()
        self.port = self._rpc.port

    async def stop(self) -> None:
        if self._rpc is not None:
            await self._rpc.stop(0)
            self._rpc = None


@dataclass
class Conversation:
    """A session: its log and what the agent may set."""

    id: str
    events: list[types_pb2.SessionEvent] = field(default_factory=list)
    title: str | None = None
    title_source: str = "user"
    description: str | None = None
    plan: bytes = b""
    spec: bytes = b""
    gone: str = ""
    title_attempts: int = 0

    def add(self, **payload: Any) -> types_pb2.SessionEvent:
        event = types_pb2.SessionEvent(
            id=new_id(), session_id=self.id, seq=len(self.events) + 1, payload=json.dumps(payload).encode()
        )
        self.events.append(event)
        return event

    @property
    def log(self) -> list[dict[str, Any]]:
        """Payloads in order."""
        return [json.loads(event.payload) for event in self.events]

    def message(self) -> types_pb2.Session:
        session = types_pb2.Session(id=self.id, account=OWNER, agent_id=AGENT, plan=self.plan)
        if self.title is not None:
            session.title = self.title
        if self.description is not None:
            session.description = self.description
        return session


@dataclass
class LedgerTurn:
    """A row of the turn ledger."""

    conversation: Conversation
    start: types_pb2.TurnStart
    attempt: int = 0
    canceled: bool = False
    outcome: types_pb2.TurnOutcome | None = None
    assistant_event_id: str = ""
    steps: dict[str, types_pb2.SessionEvent] = field(default_factory=dict)
    successor: types_pb2.TurnStart | None = None


class FakeSessions(FakeServer):
    """The turn ledger with its fence, and roles by account: `roles` for the one agent.

    `gates` holds a method's calls back before they do anything; `calls` names all that arrived.
    """

    def __init__(self) -> None:
        super().__init__(
            "sessions",
            turns_pb2.DESCRIPTOR.services_by_name["TurnsService"],
            access_pb2.DESCRIPTOR.services_by_name["AccessService"],
        )
        self.conversations: dict[str, Conversation] = {}
        self.turns: dict[str, LedgerTurn] = {}
        self.roles = {OWNER: "owner"}
        self.provider = "mine"
        self.fallback = ""
        self.gates: dict[str, asyncio.Event] = {}
        self.calls: list[str] = []
        self.continued: list[turns_pb2.ContinueSessionRequest] = []
        self.refuses = ""
        self.finishes: list[turns_pb2.FinishTurnRequest] = []

    def conversation(self, session_id: str = "") -> Conversation:
        """A session, new unless it is known."""
        session_id = session_id or new_id()
        return self.conversations.setdefault(session_id, Conversation(session_id))

    def open(self, session: Conversation, content: str = "hi", *, behind: bool = False) -> types_pb2.TurnStart:
        """Append a user's message and open its turn."""
        event = session.add(type="message", role="user", content=content)
        return self.track(turn(session.id, behind=behind, event_ids=[event.id]))

    def track(self, start: types_pb2.TurnStart) -> types_pb2.TurnStart:
        self.turns[start.run_id] = LedgerTurn(self.conversation(start.session_id), start)
        return start

    async def _turn(self, method: str, run_id: str, caller: Caller) -> LedgerTurn:
        assert caller.service in ("runs-worker", "runs-api")
        self.calls.append(method)
        if method in self.gates:
            await self.gates[method].wait()
        found = self.turns.get(run_id)
        if found is None or found.conversation.gone:
            raise NotFound(f"{found.conversation.gone if found else 'Session'} not found")
        return found

    def _check(self, found: LedgerTurn, attempt: int) -> None:
        if attempt < found.attempt:
            raise StaleAttempt("A newer attempt has taken this turn over")
        if found.canceled or found.outcome is not None:
            raise Canceled("The turn has been canceled")

    def _write(self, found: LedgerTurn, events: Sequence[turns_pb2.NewEvent]) -> list[types_pb2.SessionEvent]:
        for new in events:
            if new.step not in found.steps:
                payload = json.loads(new.payload)
                found.steps[new.step] = found.conversation.add(**payload)
                if payload.get("role") == "assistant":
                    found.assistant_event_id = found.steps[new.step].id
        return [found.steps[new.step] for new in events]

    async def BeginTurn(self, request: turns_pb2.BeginTurnRequest, caller: Caller) -> turns_pb2.BeginTurnResponse:
        found = await self._turn("BeginTurn", request.run_id, caller)
        if request.attempt < found.attempt:
            raise StaleAttempt("A newer attempt has taken this turn over")
        found.attempt = request.attempt
        session = found.conversation
        answered = {event.get("toolCallId") for event in session.log}
        for event in session.log:
            if event["type"] == "tool_call" and event["id"] not in answered:
                session.add(type="tool_result", toolCallId=event["id"], name=event["name"], error="interrupted")
        return turns_pb2.BeginTurnResponse(
            session=session.message(),
            model_provider=self.provider,
            model="scripted-1",
            system_prompt="Be brief.",
            events=session.events,
            own_event_ids=found.start.event_ids,
            queued_behind=found.start.queued_behind,
            outcome=found.outcome,
            canceled=found.canceled,
            spec=session.spec,
            title_source=session.title_source,
            title_attempts=session.title_attempts,
            fallback_provider=self.fallback,
            fallback_model="scripted-1" if self.fallback else "",
        )

    async def AppendTurnEvents(
        self, request: turns_pb2.AppendTurnEventsRequest, caller: Caller
    ) -> turns_pb2.AppendTurnEventsResponse:
        found = await self._turn("AppendTurnEvents", request.run_id, caller)
        self._check(found, request.attempt)
        return turns_pb2.AppendTurnEventsResponse(events=self._write(found, request.events))

    async def FinishTurn(self, request: turns_pb2.FinishTurnRequest, caller: Caller) -> turns_pb2.FinishTurnResponse:
        found = await self._turn("FinishTurn", request.run_id, caller)
        self.finishes.append(request)
        if found.outcome is not None:
            return turns_pb2.FinishTurnResponse(outcome=found.outcome)
        if request.status != "canceled":
            self._check(found, request.attempt)
        elif request.attempt and request.attempt < found.attempt:
            raise StaleAttempt("A newer attempt has taken this turn over")
        self._write(found, request.events)
        if request.status == "waiting":
            # It goes on with a later attempt.
            parked = types_pb2.TurnOutcome(run_id=request.run_id, status="waiting")
            return turns_pb2.FinishTurnResponse(outcome=parked)
        if request.stopped_text and not found.assistant_event_id:
            stopped = json.dumps({"type": "message", "role": "assistant", "content": request.stopped_text}).encode()
            self._write(found, [turns_pb2.NewEvent(step="stopped", payload=stopped)])
        found.outcome = types_pb2.TurnOutcome(
            run_id=request.run_id,
            status=request.status,
            assistant_event_id=found.assistant_event_id,
            error_message=request.error_message,
            error_status=request.error_status,
        )
        return turns_pb2.FinishTurnResponse(outcome=found.outcome)

    async def SpawnChild(self, request: turns_pb2.SpawnChildRequest, caller: Caller) -> turns_pb2.SpawnChildResponse:
        found = await self._turn("SpawnChild", request.run_id, caller)
        self._check(found, request.attempt)
        child = self.conversation()
        event = child.add(**json.loads(request.message))
        start = turn(
            child.id,
            run_id=request.child_run_id,
            event_ids=[event.id],
            title=request.title,
            origin="agent",
            parent_run_id=request.run_id,
            parent_tool_call_id=request.parent_tool_call_id,
            root_run_id=request.root_run_id,
            depth=request.depth,
        )
        return turns_pb2.SpawnChildResponse(turn=self.track(start))

    async def ContinueSession(
        self, request: turns_pb2.ContinueSessionRequest, caller: Caller
    ) -> turns_pb2.ContinueSessionResponse:
        found = await self._turn("ContinueSession", request.run_id, caller)
        self.continued.append(request)
        if self.refuses:
            raise Invalid(self.refuses)
        if found.outcome is None:
            self._check(found, request.attempt)
            after = self.conversation()
            after.title_source = "agent"
            after.add(type="message", role="user", content=request.handoff, actor="system")
            own = [e for e in found.conversation.events if e.id in found.start.event_ids]
            copies = [after.add(**json.loads(event.payload)) for event in own]
            start = turn(after.id, event_ids=[event.id for event in copies])
            self.turns[start.run_id] = LedgerTurn(after, start)
            output = {"successorSessionId": after.id, "title": request.title}
            result = {"type": "tool_result", "toolCallId": request.tool_call_id, "name": "continue_session"}
            payload = json.dumps({**result, "output": output}).encode()
            self._write(found, [turns_pb2.NewEvent(step=request.result_step, payload=payload)])
            found.successor = start
            found.outcome = types_pb2.TurnOutcome(
                run_id=request.run_id,
                status="succeeded",
                assistant_event_id=found.assistant_event_id,
                continued_to_session_id=after.id,
            )
        return turns_pb2.ContinueSessionResponse(turn=found.successor, outcome=found.outcome, continuation_id="c")

    async def TakeTitle(self, request: turns_pb2.TakeTitleRequest, caller: Caller) -> turns_pb2.TakeTitleResponse:
        session = (await self._turn("TakeTitle", request.run_id, caller)).conversation
        taken = session.title_source in ("", "system") and session.title_attempts < request.most_attempts
        session.title_attempts += taken
        return turns_pb2.TakeTitleResponse(taken=taken, events=session.events[: request.events] if taken else ())

    async def CancelTurns(self, request: turns_pb2.CancelTurnsRequest, caller: Caller) -> turns_pb2.CancelTurnsResponse:
        assert caller.service == "runs-api"
        self.calls.append("CancelTurns")
        for run_id in request.run_ids:
            self.turns[run_id].canceled = True
        return turns_pb2.CancelTurnsResponse()

    async def SetPlan(self, request: turns_pb2.SetPlanRequest, caller: Caller) -> turns_pb2.SetPlanResponse:
        found = await self._turn("SetPlan", request.run_id, caller)
        self._check(found, request.attempt)
        found.conversation.plan = request.plan
        return turns_pb2.SetPlanResponse(session=found.conversation.message())

    async def DescribeSession(
        self, request: turns_pb2.DescribeSessionRequest, caller: Caller
    ) -> turns_pb2.DescribeSessionResponse:
        found = await self._turn("DescribeSession", request.run_id, caller)
        if not request.automatic:
            self._check(found, request.attempt)
        session = found.conversation
        mine = session.title_source in ("", "system") if request.automatic else session.title_source != "user"
        if request.HasField("title") and (mine or session.title is None):
            session.title, session.title_source = request.title, "agent"
        if request.HasField("description"):
            if not request.description:
                raise Invalid("Session description is required")
            session.description = request.description
        return turns_pb2.DescribeSessionResponse(session=session.message())

    async def ResolveAccess(
        self, request: access_pb2.ResolveAccessRequest, caller: Caller
    ) -> access_pb2.ResolveAccessResponse:
        by_session = request.WhichOneof("subject") == "session_id"
        known = request.session_id in self.conversations if by_session else request.agent_id == AGENT
        role = self.roles.get(caller.account) if known else None
        order = ("reader", "chatter", "writer", "owner")
        if role is None:
            raise NotFound(f"{request.noun or ('Session' if by_session else 'Agent')} not found")
        if order.index(role) < order.index(request.need or "reader"):
            raise Forbidden(f"{request.need} is needed")
        return access_pb2.ResolveAccessResponse(agent_id=AGENT, owner=OWNER, role=role)


class FakeSecrets(FakeServer):
    """Knows one provider, `mine`, at `base_url`; without a key it is refused."""

    def __init__(self, base_url: str) -> None:
        super().__init__("secrets", secrets_pb2.DESCRIPTOR.services_by_name["ProvidersService"])
        self.base_url, self.api_key = base_url, "sk-secret"

    async def ResolveModelProvider(
        self, request: secrets_pb2.ResolveModelProviderRequest, caller: Caller
    ) -> secrets_pb2.ResolveModelProviderResponse:
        assert (caller.service, caller.account, request.account) == ("runs-worker", OWNER, OWNER)
        if request.provider != "mine":
            raise NotFound("Model provider not found")
        if not self.api_key:
            raise Invalid("Secret not found: key")
        return secrets_pb2.ResolveModelProviderResponse(
            type="custom",
            base_url=self.base_url,
            api_key=self.api_key,
            model_defaults=wire.encode({"temperature": 0}),
        )
