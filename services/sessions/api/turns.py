"""TurnsService: how runs reads and writes the log of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from seed.sessions.v1 import turns_pb2 as pb

from libs.errors import Invalid
from libs.rpc import Caller
from libs.wire import encode
from services.sessions.api.decoding import document, only, optional
from services.sessions.api.space import SpaceIndexes
from services.sessions.domain import children, continuation, prompt, turns
from services.sessions.domain.definition import with_override
from services.sessions.domain.ids import named
from services.sessions.store import ledger
from services.sessions.store.children import Child, ChildStore
from services.sessions.store.continuations import ContinuationStore, Passage, Wanted
from services.sessions.store.rows import outcome_of, session_of
from services.sessions.store.titling import TitleStore
from services.sessions.store.turns import Begun, Ending, TurnStore

_ENDS = (turns.SUCCEEDED, turns.FAILED, turns.CANCELED, turns.WAITING)


def _run_id(value: str) -> str:
    return named(value, "Run ID", "Session")


def _steps(events: Iterable[pb.NewEvent]) -> list[ledger.Step]:
    return [ledger.step(event.step, event.payload) for event in events]


class TurnsApi:
    """Serves runs alone. `now` gives Unix milliseconds, `settle` waits a moment until what was told has left."""

    def __init__(
        self,
        turns: TurnStore,
        kids: ChildStore,
        continuations: ContinuationStore,
        titles: TitleStore,
        spaces: SpaceIndexes,
        now: Callable[[], int],
        settle: Callable[[], Awaitable[object]],
    ) -> None:
        self._turns, self._children, self._now, self._settle = turns, kids, now, settle
        self._continuations, self._titles, self._spaces = continuations, titles, spaces

    async def BeginTurn(self, request: pb.BeginTurnRequest, caller: Caller) -> pb.BeginTurnResponse:
        """Fence older attempts and return everything a turn needs."""
        _internal(caller)
        waiting = frozenset(request.waiting_tool_call_ids)
        begun = await self._turns.begin(_run_id(request.run_id), request.attempt, waiting)
        own = document(begun.definition)
        row = begun.session
        space = await self._spaces.text(row["owner"], row["agent_id"], own, children.tools(begun.spec))
        return self._input(begun, own, space)

    async def AppendTurnEvents(
        self, request: pb.AppendTurnEventsRequest, caller: Caller
    ) -> pb.AppendTurnEventsResponse:
        """Append events, each once by its step."""
        _internal(caller)
        events = await self._turns.append(_run_id(request.run_id), request.attempt, _steps(request.events))
        # The run goes on and streams over its own connection: what it appended before must not come after that.
        await self._settle()
        return pb.AppendTurnEventsResponse(events=events)

    async def FinishTurn(self, request: pb.FinishTurnRequest, caller: Caller) -> pb.FinishTurnResponse:
        """End a turn, once."""
        _internal(caller)
        if request.status not in _ENDS:
            raise Invalid(f"A turn does not end as {request.status}")
        ending = Ending(request.status, request.error_message, request.error_status, request.stopped_text)
        outcome = await self._turns.finish(_run_id(request.run_id), request.attempt, _steps(request.events), ending)
        return pb.FinishTurnResponse(outcome=outcome)

    async def SpawnChild(self, request: pb.SpawnChildRequest, caller: Caller) -> pb.SpawnChildResponse:
        """Open a delegated session and its turn, once."""
        _internal(caller)
        child = Child(
            run_id=_run_id(request.child_run_id),
            agent_id="" if "\0" in request.agent_id else request.agent_id,
            title=request.title.replace("\0", ""),
            title_source=request.title_source,
            message=request.message,
            spec=request.spec,
            tool_call_id=request.parent_tool_call_id.replace("\0", "\ufffd"),
            root_run_id=_run_id(request.root_run_id),
            depth=request.depth,
            plan_step_id=request.plan_step_id.replace("\0", ""),
            step_label=request.step_label.replace("\0", ""),
            most_chain=request.most_chain,
            most_detached=request.most_detached,
        )
        turn = await self._children.spawn(_run_id(request.run_id), request.attempt, child)
        return pb.SpawnChildResponse(turn=turn)

    async def AnswerCall(self, request: pb.AnswerCallRequest, caller: Caller) -> pb.AnswerCallResponse:
        """Append the result of a delegated call, once."""
        _internal(caller)
        run_id = _run_id(request.run_id)
        taken = await self._children.answer(
            run_id,
            request.child_run_id or request.tool_call_id,
            request.tool_call_id.replace("\0", "\ufffd"),
            request.payload,
            request.resolve_step_id,
        )
        return pb.AnswerCallResponse(taken=taken)

    async def CancelTurns(self, request: pb.CancelTurnsRequest, caller: Caller) -> pb.CancelTurnsResponse:
        """Mark turns as canceled."""
        _internal(caller)
        await self._turns.cancel([run_id for run_id in request.run_ids if "\0" not in run_id])
        return pb.CancelTurnsResponse()

    async def SetPlan(self, request: pb.SetPlanRequest, caller: Caller) -> pb.SetPlanResponse:
        """Replace the plan."""
        _internal(caller)
        session = await self._turns.set_plan(_run_id(request.run_id), request.attempt, request.plan)
        return pb.SetPlanResponse(session=session)

    async def DescribeSession(self, request: pb.DescribeSessionRequest, caller: Caller) -> pb.DescribeSessionResponse:
        """Set title and description for the agent, or automatically."""
        _internal(caller)
        session = await self._turns.describe(
            _run_id(request.run_id),
            request.attempt,
            optional(request, "title"),
            optional(request, "description"),
            automatic=request.automatic,
        )
        return pb.DescribeSessionResponse(session=session)

    async def ContinueSession(self, request: pb.ContinueSessionRequest, caller: Caller) -> pb.ContinueSessionResponse:
        """End a turn and let a successor answer its message, once."""
        _internal(caller)
        if request.reason not in continuation.REASONS or request.plan not in continuation.TRANSFERS:
            raise Invalid("No such reason or transfer")
        cited = [
            Passage(named(c.session_id, "Session ID", "Session") if c.session_id else "", c.from_seq, c.to_seq)
            for c in request.cited
        ]
        wanted = Wanted(
            tool_call_id=request.tool_call_id.replace("\0", "\ufffd"),
            result_step=request.result_step,
            duration_ms=request.duration_ms,
            reason=request.reason,
            title=request.title.replace("\0", ""),
            description=request.description.replace("\0", ""),
            handoff=request.handoff,
            plan=request.plan,
            cited=cited,
        )
        done = await self._continuations.go_on(_run_id(request.run_id), request.attempt, wanted)
        return pb.ContinueSessionResponse(turn=done.start, outcome=done.outcome, continuation_id=done.id)

    async def ResolveStep(self, request: pb.ResolveStepRequest, caller: Caller) -> pb.ResolveStepResponse:
        """Mark a plan step as done by the runtime."""
        _internal(caller)
        step = (request.step_id.replace("\0", ""), request.step_label.replace("\0", ""))
        await self._children.resolve_step(_run_id(request.run_id), *step)
        return pb.ResolveStepResponse()

    async def TakeTitle(self, request: pb.TakeTitleRequest, caller: Caller) -> pb.TakeTitleResponse:
        """Take an attempt at an automatic title."""
        _internal(caller)
        events = await self._titles.take(_run_id(request.run_id), request.most_attempts, request.events)
        return pb.TakeTitleResponse(taken=events is not None, events=events)

    def _input(self, begun: Begun, own: dict[str, Any], space: str) -> pb.BeginTurnResponse:
        row, turn = begun.session, begun.turn
        override = None if row["model_override"] is None else msgspec.json.decode(row["model_override"])
        effective = with_override(own, override)
        members = prompt.roster(row["owner"], begun.roster)
        response = pb.BeginTurnResponse(
            session=session_of(row),
            definition=begun.definition if override is None else encode(effective),
            model_provider=effective["modelProvider"],
            model=effective["model"],
            reasoning_level=effective.get("reasoningLevel", ""),
            system_prompt=prompt.system_prompt(
                children.persona(begun.spec) or prompt.instructions(begun.definition),
                members,
                self._now(),
                continues=not turn["parent_run_id"] and not children.typed(begun.spec),
                space=space,
            ),
            events=begun.events,
            own_event_ids=turn["event_ids"],
            queued_behind=turn["queued_behind"],
            outcome=outcome_of(turn) if turn["state"] == "done" else None,
            canceled=turn["canceled"],
            title_source=row["title_source"],
            spec=begun.spec,
            pending_children=begun.pending,
            title_attempts=row["title_attempts"],
        )
        if override is not None:
            response.fallback_provider = own["modelProvider"]
            response.fallback_model = own["model"]
            response.fallback_reasoning_level = own.get("reasoningLevel", "")
        return response


def _internal(caller: Caller) -> None:
    only(caller, "runs-api", "runs-worker")
