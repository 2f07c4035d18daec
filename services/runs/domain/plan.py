"""The plan of a session: what a `plan` call makes of it (runtime.md, section 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STEPS = 100
TEXT_CHARS = 200
STATUSES = ("pending", "running", "done", "failed", "skipped")
SETTLED = ("done", "failed", "skipped")

Plan = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StepRuns:
    """Plan steps, as (id, label), by the runs that work on them: all have succeeded (`done`), some go on (`live`)."""

    done: frozenset[tuple[str, str]] = frozenset()
    live: frozenset[tuple[str, str]] = frozenset()


def normalize(arguments: Mapping[str, Any], previous: Mapping[str, Any] | None, *, run_id: str, now: int) -> Plan:
    """The plan that replaces `previous` when run `run_id` calls `plan` at `now` (Unix ms).

    Lenient: at most 100 steps, texts cut at 200 characters, an unknown status is pending, a text is a step, a missing
    id becomes `step-<n>`. The runtime's own marks (`resolvedBy`, `settledAt`, `ownerRunId`) never come from the model.
    """
    old = {s.get("id"): s for s in (previous or {}).get("steps", ())}
    raw = arguments.get("steps")
    steps = [_step(value, n, old) for n, value in enumerate(raw[:STEPS], 1)] if isinstance(raw, list) else []
    plan: Plan = {}
    title = arguments.get("title")
    if isinstance(title, str) and title.strip():
        plan["title"] = title.strip()[:TEXT_CHARS]
    plan["steps"] = steps
    plan["ownerRunId"] = _owner(steps, previous, run_id)
    if settled(plan):
        before = (previous or {}).get("settledAt")
        plan["settledAt"] = before if before is not None else now
    return plan


def _step(value: Any, n: int, old: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    if isinstance(value, str):
        value = {"label": value}
    if not isinstance(value, Mapping):
        value = {}
    raw_id, label, status = value.get("id"), value.get("label"), value.get("status")
    step_id = raw_id.strip()[:TEXT_CHARS] if isinstance(raw_id, str) and raw_id.strip() else f"step-{n}"
    step = {
        "id": step_id,
        "label": label.strip()[:TEXT_CHARS] if isinstance(label, str) and label.strip() else step_id,
        "status": status if status in STATUSES else "pending",
    }
    if step["status"] == "done" and old.get(step_id, {}).get("resolvedBy") == "runtime":
        step["resolvedBy"] = "runtime"
    return step


def _owner(steps: Sequence[Mapping[str, Any]], previous: Mapping[str, Any] | None, run_id: str) -> str:
    # Saying a settled plan once more does not make it the work of another run.
    if not previous or previous.get("settledAt") is None:
        return run_id
    same = {s["id"] for s in steps} == {s.get("id") for s in previous.get("steps", ())}
    return str(previous.get("ownerRunId") or run_id) if same else run_id


def settled(plan: Mapping[str, Any]) -> bool:
    """Whether the plan has steps and all of them are done, failed or skipped."""
    steps = plan.get("steps") or ()
    return bool(steps) and all(s.get("status") in SETTLED for s in steps)


def is_history(plan: Mapping[str, Any], run_id: str) -> bool:
    """Whether a turn of `run_id` finds the plan settled by another run, and so retires it."""
    return plan.get("settledAt") is not None and plan.get("ownerRunId") != run_id


def key(step: Mapping[str, Any]) -> tuple[str, str]:
    """What a step is known by to the runs that work on it: id and label."""
    return str(step.get("id")), str(step.get("label"))


def resolved(plan: Mapping[str, Any], work: StepRuns, now: int) -> Plan:
    """The plan with the open steps done by the runtime whose runs have all succeeded. `now` is Unix milliseconds."""
    done = [s.get("status") not in SETTLED and key(s) in work.done for s in plan.get("steps", ())]
    steps = [
        {**s, "status": "done", "resolvedBy": "runtime"} if d else dict(s)
        for s, d in zip(plan.get("steps", ()), done, strict=True)
    ]
    after: Plan = {**plan, "steps": steps}
    if any(done) and settled(after):
        after["settledAt"] = now
    return after
