"""`run:<id>`: a piece of work of the account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from seed.runs.v1 import runs_pb2

from libs.store import Row
from services.runs.domain.addresses import Form, Reading
from services.runs.domain.verbs import VerbError
from services.runs.store.rows import run_of
from services.runs.verbs.contract import Actor, Output

_TEXTS = (
    "parent_run_id", "parent_tool_call_id", "continued_from_run_id", "agent_id", "session_id", "step_label",
    "plan_step_id", "source_text",
)  # fmt: skip
_DOCUMENTS = ("wait", "plan", "error", "unmet_obligations", "usage")
_TIMES = ("started_at", "finished_at")


class Runs:
    """Reads runs. `get` gives the row of a run, None without one."""

    form = Form("run:", "run:<id>")

    def __init__(self, get: Callable[[str], Awaitable[Row | None]]) -> None:
        self._get = get

    async def read(self, actor: Actor, rest: str, given: Reading) -> Output:
        """A run, with its source when it is a script."""
        row = None if "\0" in rest else await self._get(rest)
        if row is None or row["account"] != actor.owner or row["agent_id"] is None:
            raise VerbError(f"No run {rest}")
        run = run_of(row)
        return Output({"summary": f'"{run.title}" is {run.status}.', **info(run)})


def info(run: runs_pb2.Run) -> dict[str, Any]:
    """The public RunInfo of a run."""
    value: dict[str, Any] = {
        "id": run.id,
        "account": run.account,
        "rootRunId": run.root_run_id,
        "depth": run.depth,
        "kind": run.kind,
        "origin": run.origin,
        "title": run.title,
        "status": run.status,
        "createdAt": run.created_at,
        "updatedAt": run.updated_at,
    }
    for name in (*_TEXTS, *_TIMES):
        if run.HasField(name):
            value[_public(name)] = getattr(run, name)
    for name in _DOCUMENTS:
        if body := getattr(run, name):
            value[_public(name)] = msgspec.json.decode(body)
    if run.child_run_count:
        value["childRunCount"] = run.child_run_count
    return value


def _public(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)
