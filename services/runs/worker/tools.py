"""The tools of a turn: what is offered and how it is executed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from seed.sessions.v1 import turns_pb2
from seed.sessions.v1 import types_pb2 as st

from libs.protocol import schema_subset as schema
from libs.store import Row
from services.runs.domain import continuation, delegate, verbs
from services.runs.domain import plan as plans
from services.runs.domain.transcript import LogEvent
from services.runs.providers.contract import ToolCallPart, ToolSpec
from services.runs.store.family import Family
from services.runs.store.queue import Queue
from services.runs.worker import session_plan
from services.runs.worker.log import SessionLog
from services.runs.worker.space import Space

RETURN = "return_result"
RESULT_ATTEMPTS = 3
"""Invalid results a typed child may deliver before its run fails (limits.md)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far delegation goes: depth of runs, awaited children a run, detached sessions a session."""

    depth: int = 3
    children: int = 10
    detached: int = 10


@dataclass(frozen=True, slots=True)
class Spawned:
    """An awaited child: its call is answered when the child is over."""

    turn: st.TurnStart


@dataclass(frozen=True, slots=True)
class Story:
    """The conversation a turn works in: session, title, its log from the first event on, and the turn's own events."""

    session_id: str
    title: str
    log: Sequence[LogEvent]
    own: Sequence[str]


class ToolBox:
    """Executes the verbs of one turn of run `row`.

    `plan` is the session's live plan, `spec` the delegation that the turn works under. `result` is what a typed child
    has delivered, `refused` how often it delivered something else, `spawned` the children the turn has to wait for,
    `continued` the successor that answers in the place of the turn.
    """

    def __init__(
        self,
        log: SessionLog,
        queue: Queue,
        family: Family,
        row: Row,
        *,
        plan: dict[str, Any] | None,
        spec: Mapping[str, Any],
        story: Story,
        limits: Limits,
        now: Callable[[], int],
        space: Space,
    ) -> None:
        self._log, self._queue, self._family, self._row = log, queue, family, row
        self.plan, self._output, self._limits, self._now = plan, spec.get("output"), limits, now
        self._story = story
        self.space = space
        self.result: Any = None
        self.continued: turns_pb2.ContinueSessionResponse | None = None
        self.returned = False
        self.refused = 0
        self.spawned: list[Spawned] = []
        # Calls of one reply run side by side; plan and children are counted and changed as one step.
        self._lock = asyncio.Lock()

    @property
    def typed(self) -> bool:
        """Whether the turn owes a result of a declared shape."""
        return self._output is not None

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """What the model is offered, in order."""
        offered = self.space.specs
        if self._row["depth"] < self._limits.depth:
            offered.append(delegate.DELEGATE)
        offered += verbs.VERBS
        if self.continues:
            offered.append(continuation.CONTINUE)
        if self._output is not None:
            offered.append(delegate.return_result(self._output))
        return offered

    @property
    def continues(self) -> bool:
        """Whether the turn may go on in another session: no delegated one may."""
        return not self._row["parent_run_id"] and self._output is None

    def logged(self, name: str) -> bool:
        """Whether calls of this tool leave events in the session; `plan` leaves none."""
        return name != "plan"

    def recover(self, events: Sequence[LogEvent]) -> None:
        """Take up what an earlier claim of the turn has delivered."""
        if self._output is None:
            return
        given: dict[Any, Any] = {}
        for event in events:
            payload = event.payload
            if payload.get("name") != RETURN:
                continue
            if payload.get("type") == "tool_call":
                given[payload.get("id")] = payload.get("input")
            elif payload.get("type") == "tool_result" and payload.get("toolCallId") in given:
                value = given.pop(payload["toolCallId"])
                if "error" in payload:
                    self.refused += isinstance(value, dict) and bool(schema.errors(value, self._shape))
                elif not self.returned:
                    self.result, self.returned = value, True

    @property
    def _shape(self) -> dict[str, Any]:
        return {"type": "object", **(self._output or {})}

    async def execute(self, call: ToolCallPart, step: str) -> Any:
        """Run a call and return its output, or `Spawned`. `step` names the reply. Raises VerbError for the model."""
        arguments = call.arguments
        if not isinstance(arguments, dict):
            raise verbs.VerbError(f"The arguments of {call.name} are not a JSON object. Send an object.")
        if self.space.has(call.name):
            return await self.space.execute(call.name, arguments)
        if call.name == "plan":
            return await self._set_plan(arguments)
        if call.name == "status":
            return await self._set_status(arguments)
        if call.name == "delegate":
            return await self._delegate(call, arguments, step)
        if call.name == RETURN and self._output is not None:
            return self._take_result(arguments)
        if call.name == continuation.NAME and self.continues:
            raise verbs.VerbError(continuation.ONCE)
        offered = ", ".join(s.name for s in self.specs)
        raise verbs.VerbError(f"There is no tool named {call.name}. Tools: {offered}.")

    async def go_on(self, call: ToolCallPart, result_step: str, started: float) -> None:
        """Let a successor answer; the turn ends with it, and `result_step` is the result of the call.

        `started` is when the call began (time.monotonic). It comes after all other calls of a reply. Raises VerbError
        and Invalid for the model.
        """
        if self.spawned:
            raise verbs.VerbError(continuation.PENDING)
        arguments = call.arguments
        wanted = continuation.parse(arguments if isinstance(arguments, dict) else {})
        story = self._story
        told = continuation.handoff(wanted, story.session_id, story.title, story.log, story.own)
        duration_ms = int((time.monotonic() - started) * 1000)
        self.continued = await self._log.go_on(call.id, result_step, duration_ms, wanted, told)

    async def _set_plan(self, arguments: dict[str, Any]) -> Any:
        if not isinstance(arguments.get("steps"), list):
            raise verbs.VerbError("plan needs steps: a list of {id, label, status}")
        async with self._lock:
            before = await session_plan.marked(self._family, self._row, self.plan, self._now())
            plan = plans.normalize(arguments, before, run_id=self._row["id"], now=self._now())
            await self._log.set_plan(plan)
            self.plan = plan
            if plan["ownerRunId"] == self._row["id"] and plans.settled(plan):
                await self._queue.store_plan(self._row["id"], self._row["attempt"], plan)
        return {"ok": True, "steps": len(plan["steps"])}

    async def _set_status(self, arguments: dict[str, Any]) -> Any:
        change = verbs.status_change(arguments)
        session = await self._log.describe(change.title, change.description)
        answer: dict[str, Any] = {"ok": True}
        if session.HasField("title"):
            answer["title"] = session.title
        if session.HasField("description"):
            answer["description"] = session.description
        return answer

    def _take_result(self, value: dict[str, Any]) -> Any:
        faults = schema.errors(value, self._shape)
        if faults:
            self.refused += 1
            raise verbs.VerbError("The result does not have the declared shape: " + "; ".join(faults))
        if not self.returned:
            self.result, self.returned = value, True
        return {"ok": True}

    async def _delegate(self, call: ToolCallPart, arguments: dict[str, Any], step: str) -> Any:
        wanted = delegate.parse(arguments)
        async with self._lock:
            limits, row = self._limits, self._row
            if row["depth"] + 1 > limits.depth:
                raise verbs.VerbError(f"delegate: depth limit reached ({limits.depth}). Do the work here.")
            if not wanted.detached:
                spawned_now = {spawned.turn.run_id for spawned in self.spawned}
                if len(await self._family.awaited(row["id"]) | spawned_now) >= limits.children:
                    raise verbs.VerbError(f"delegate: {limits.children} helpers a run is the most. Do the work here.")
            plan_step = self._running_step()
            turn = await self._log.spawn(
                delegate.child_run_id(row["id"], call.id, step),
                wanted,
                tool_call_id="" if wanted.detached else call.id,
                root_run_id=row["root_run_id"],
                depth=row["depth"] + 1,
                plan_step_id=plan_step.get("id", ""),
                step_label=plan_step.get("label", ""),
                most_chain=limits.depth if wanted.detached else 0,
                most_detached=limits.detached if wanted.detached else 0,
            )
            if not wanted.detached:
                spawned = Spawned(turn)
                self.spawned.append(spawned)
                return spawned
            await self._family.start(turn)
        return {
            "summary": "Started. It works on its own; nothing comes back to this conversation.",
            "status": "detached",
            "sessionId": turn.session_id,
            "title": turn.title,
        }

    def _running_step(self) -> dict[str, Any]:
        plan = self.plan
        if plan is None and self._row["plan"] is not None:
            plan = msgspec.json.decode(self._row["plan"])
        running = [s for s in (plan or {}).get("steps", ()) if s.get("status") == "running"]
        return running[0] if len(running) == 1 else {}
