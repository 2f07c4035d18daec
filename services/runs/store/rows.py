"""Run rows and what they become on the wire inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seed.runs.v1 import runs_pb2
from seed.sessions.v1 import types_pb2

from libs.store import Row
from services.runs.domain.usage import with_children

Fields = Row | Mapping[str, Any]
"""A row, or what it is about to be."""

_OPTIONAL = (
    "parent_run_id",
    "parent_tool_call_id",
    "continued_from_run_id",
    "agent_id",
    "session_id",
    "step_label",
    "plan_step_id",
    "source_text",
    "started_at",
    "finished_at",
)
_DOCUMENTS = ("wait", "plan", "error", "unmet_obligations")
_REQUIRED = (
    "id",
    "account",
    "root_run_id",
    "depth",
    "kind",
    "origin",
    "title",
    "status",
    "created_at",
    "updated_at",
    "version",
)


def run_of(row: Fields) -> runs_pb2.Run:
    """The message of a run row; `child_run_count` is filled when the row has it."""
    run = runs_pb2.Run(**{name: row[name] for name in _REQUIRED})
    for name in (*_OPTIONAL, *_DOCUMENTS):
        value = row[name]
        if value is not None:
            setattr(run, name, value)
    usage = with_children(row["usage"], row["children_usage"])
    if usage is not None:
        run.usage = usage
    count = row.get("child_run_count")
    if count:
        run.child_run_count = count
    return run


def outcome_of(row: Row) -> types_pb2.TurnOutcome:
    """How the turn of a terminal or parked run row ended."""
    error = b"" if row["error"] is None else row["error"]
    return types_pb2.TurnOutcome(
        run_id=row["id"],
        status=row["status"],
        assistant_event_id=row["assistant_event_id"],
        error_message=_message(error),
        error_status=row["error_status"],
        gone=row["gone"],
        continued_to_session_id=row["continued_to"],
    )


def _message(error: bytes) -> str:
    if not error:
        return ""
    import msgspec

    return str(msgspec.json.decode(error).get("message", ""))
