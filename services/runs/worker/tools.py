"""The tools of a turn: what is offered and how it is executed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from services.runs.domain import plan as plans
from services.runs.domain import verbs
from services.runs.providers.contract import ToolCallPart, ToolSpec
from services.runs.store.queue import Queue
from services.runs.worker.log import SessionLog


class ToolBox:
    """Executes the verbs of one turn. `plan` is the session's live plan when the turn began."""

    def __init__(
        self, log: SessionLog, queue: Queue, held: Any, plan: dict[str, Any] | None, now: Callable[[], int]
    ) -> None:
        self._log, self._queue, self._held, self._plan, self._now = log, queue, held, plan, now
        # Calls of one reply run side by side; the plan is read and replaced as one step.
        self._lock = asyncio.Lock()

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """What the model is offered, in order."""
        return verbs.VERBS

    def logged(self, name: str) -> bool:
        """Whether calls of this tool leave events in the session; `plan` leaves none."""
        return name != "plan"

    async def execute(self, call: ToolCallPart) -> Any:
        """Run a call and return its output. Raises VerbError with a text for the model."""
        arguments = call.arguments
        if not isinstance(arguments, dict):
            raise verbs.VerbError(f"The arguments of {call.name} are not a JSON object. Send an object.")
        if call.name == "plan":
            return await self._set_plan(arguments)
        if call.name == "status":
            return await self._set_status(arguments)
        offered = ", ".join(s.name for s in self.specs)
        raise verbs.VerbError(f"There is no tool named {call.name}. Tools: {offered}.")

    async def _set_plan(self, arguments: dict[str, Any]) -> Any:
        if not isinstance(arguments.get("steps"), list):
            raise verbs.VerbError("plan needs steps: a list of {id, label, status}")
        async with self._lock:
            plan = plans.normalize(arguments, self._plan, run_id=self._held.run_id, now=self._now())
            await self._log.set_plan(plan)
            self._plan = plan
            if plan["ownerRunId"] == self._held.run_id and plans.settled(plan):
                await self._queue.store_plan(self._held.run_id, self._held.attempt, plan)
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
