"""The session's log as a turn sees it: calls to sessions, fenced by the attempt of the claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from seed.sessions.v1 import turns_pb2, turns_pb2_grpc, types_pb2

from libs.protocol import json_bytes
from libs.rpc import Peer
from services.runs.domain.continuation import Continuation
from services.runs.domain.delegate import Delegation, first_message

PATIENCE_S = 60.0
"""How long a turn waits for sessions or secrets to come back before it hands the run back."""


class SessionLog:
    """Reads and writes the log of one session for one claim of a run."""

    def __init__(self, sessions: Peer, run_id: str, attempt: int) -> None:
        self._peer, self._stub = sessions, sessions.stub(turns_pb2_grpc.TurnsServiceStub)
        self._run, self._attempt = run_id, attempt

    async def begin(self) -> turns_pb2.BeginTurnResponse:
        """Fence older attempts and read all a turn needs. Raises NotFound when the session is gone."""
        request = turns_pb2.BeginTurnRequest(run_id=self._run, attempt=self._attempt)
        return await self._peer.call(self._stub.BeginTurn, request, timeout_s=PATIENCE_S, retry=True)

    async def append(self, *events: turns_pb2.NewEvent) -> list[types_pb2.SessionEvent]:
        """Append events, each once by its step. Raises StaleAttempt, Canceled or NotFound."""
        request = turns_pb2.AppendTurnEventsRequest(run_id=self._run, attempt=self._attempt, events=events)
        answer = await self._peer.call(self._stub.AppendTurnEvents, request, timeout_s=PATIENCE_S, retry=True)
        return list(answer.events)

    async def finish(
        self,
        status: str,
        events: Sequence[turns_pb2.NewEvent] = (),
        *,
        error_message: str = "",
        error_status: int = 0,
        stopped_text: str = "",
    ) -> types_pb2.TurnOutcome:
        """End the turn; repeating it gives the recorded outcome. Raises StaleAttempt, Canceled or NotFound."""
        request = turns_pb2.FinishTurnRequest(
            run_id=self._run,
            attempt=self._attempt,
            status=status,
            events=events,
            error_message=error_message,
            error_status=error_status,
            stopped_text=stopped_text,
        )
        answer = await self._peer.call(self._stub.FinishTurn, request, timeout_s=PATIENCE_S, retry=True)
        return answer.outcome

    async def set_plan(self, plan: Mapping[str, Any] | None) -> types_pb2.Session:
        """Replace or clear the session's plan."""
        body = msgspec.json.encode(plan) if plan is not None else b""
        request = turns_pb2.SetPlanRequest(run_id=self._run, attempt=self._attempt, plan=body)
        answer = await self._peer.call(self._stub.SetPlan, request, timeout_s=PATIENCE_S, retry=True)
        return answer.session

    async def spawn(self, child_run_id: str, wanted: Delegation, **where: Any) -> types_pb2.TurnStart:
        """Open a delegated session with its turn; `where` are the other fields of SpawnChildRequest.

        Raises Invalid with a text for the model, NotFound, StaleAttempt, Canceled.
        """
        request = turns_pb2.SpawnChildRequest(
            run_id=self._run,
            attempt=self._attempt,
            child_run_id=child_run_id,
            agent_id=wanted.agent_id,
            title=wanted.title,
            title_source="agent" if wanted.titled else "system",
            message=first_message(wanted.brief),
            spec=json_bytes(wanted.spec) if wanted.spec else b"",
            parent_tool_call_id=where.pop("tool_call_id"),
            **where,
        )
        answer = await self._peer.call(self._stub.SpawnChild, request, timeout_s=PATIENCE_S, retry=True)
        return answer.turn

    async def go_on(
        self, tool_call_id: str, result_step: str, duration_ms: int, wanted: Continuation, handoff: str
    ) -> turns_pb2.ContinueSessionResponse:
        """End the turn and let a successor session answer; repeating it gives the same one.

        Raises Invalid with a text for the model, NotFound, StaleAttempt, Canceled.
        """
        request = turns_pb2.ContinueSessionRequest(
            run_id=self._run,
            attempt=self._attempt,
            tool_call_id=tool_call_id,
            result_step=result_step,
            duration_ms=duration_ms,
            reason=wanted.reason,
            title=wanted.title,
            description=wanted.description,
            handoff=handoff,
            plan=wanted.plan,
            cited=[
                turns_pb2.CitedEvents(session_id=s.session_id, from_seq=s.first, to_seq=s.last)
                for s in wanted.sources
                if s.first
            ],
        )
        return await self._peer.call(self._stub.ContinueSession, request, timeout_s=PATIENCE_S, retry=True)

    async def take_title(self, most_attempts: int, events: int) -> list[types_pb2.SessionEvent] | None:
        """Take one of the session's attempts at a title: the first events of its log; None without an attempt left.

        Raises NotFound.
        """
        request = turns_pb2.TakeTitleRequest(run_id=self._run, most_attempts=most_attempts, events=events)
        answer = await self._peer.call(self._stub.TakeTitle, request)
        return list(answer.events) if answer.taken else None

    async def describe(
        self, title: str | None, description: str | None, *, automatic: bool = False
    ) -> types_pb2.Session:
        """Name the session; a user's title wins silently."""
        request = turns_pb2.DescribeSessionRequest(
            run_id=self._run, attempt=self._attempt, title=title, description=description, automatic=automatic
        )
        answer = await self._peer.call(self._stub.DescribeSession, request, timeout_s=PATIENCE_S, retry=True)
        return answer.session
