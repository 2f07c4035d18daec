"""Rules of delegated sessions (runtime.md, sections 7 and 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

NO_AGENT = "delegate: there is no such agent in this account"
_SETTLED = ("done", "failed", "skipped")


def too_deep(most: int) -> str:
    """The refusal of a detached session below too many others."""
    return f"delegate: depth limit reached ({most}): this conversation was itself started by others. Do the work here."


def too_many(most: int) -> str:
    """The refusal of one more detached session."""
    return f"delegate: this conversation has started {most} sessions already, the most it may. Do the work here."


def answer_step(child_run_id: str) -> str:
    """Name of the step by which a child answers its call, the same for every attempt."""
    return f"answer:{child_run_id}"


def resolved(plan: Mapping[str, Any], step_id: str, now: int, label: str | None = None) -> dict[str, Any] | None:
    """The plan with an open step (of this label, if given) done by the runtime; None when there is nothing to change.

    `now` is Unix milliseconds.
    """
    steps = [dict(step) for step in plan.get("steps", ())]
    for step in steps:
        if (
            step.get("id") == step_id
            and step.get("status") not in _SETTLED
            and (label is None or step.get("label") == label)
        ):
            step["status"], step["resolvedBy"] = "done", "runtime"
            break
    else:
        return None
    changed = {**plan, "steps": steps}
    if all(step.get("status") in _SETTLED for step in steps):
        changed["settledAt"] = now
    return changed


def persona(spec: bytes) -> str:
    """The prompt that a delegation puts in the place of the agent's own; empty when it keeps it."""
    value = msgspec.json.decode(spec).get("prompt") if spec else None
    return value if isinstance(value, str) else ""


def tools(spec: bytes) -> list[str] | None:
    """The tools that a delegation narrows its child to; None when it does not."""
    value = msgspec.json.decode(spec).get("tools") if spec else None
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else None


def typed(spec: bytes) -> bool:
    """Whether a delegation asks for a result of a declared shape."""
    return bool(spec) and msgspec.json.decode(spec).get("output") is not None
