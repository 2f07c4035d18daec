"""What a turn still owes when the model has nothing more to say (runtime.md, section 8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from services.runs.domain.plan import SETTLED, key, settled

REMINDERS = 3
"""How often a claim is reminded before the debt is recorded."""

Obligation = dict[str, Any]


def open_obligations(
    *, typed: bool, returned: bool, plan: Mapping[str, Any] | None, run_id: str, live_children: bool
) -> list[Obligation]:
    """The public UnmetObligation list of a turn that wants to end.

    A typed child owes its result; a run owes the steps of its own plan that are neither done, failed nor skipped,
    unless children of it are still at work.
    """
    debts: list[Obligation] = []
    if typed and not returned:
        debts.append({"kind": "typed-result"})
    if plan and plan.get("ownerRunId") == run_id and not live_children:
        labels = [str(s.get("label")) for s in plan.get("steps", ()) if s.get("status") not in SETTLED]
        if labels:
            debts.append({"kind": "plan", "steps": labels})
    return debts


def reminder(debts: Sequence[Obligation]) -> str:
    """What the model is told while it may still make good."""
    return "Before you end, this is still open:\n" + _list(debts) + "\nDo it now, or say why it cannot be done."


def record(debts: Sequence[Obligation]) -> str:
    """What the conversation keeps when the debt stays."""
    return "The work ended with this undone:\n" + _list(debts)


def _list(debts: Sequence[Obligation]) -> str:
    lines: list[str] = []
    for debt in debts:
        if debt["kind"] == "typed-result":
            lines.append("- the result you were asked for: deliver it with return_result")
        else:
            lines += [f"- plan step: {label}" for label in debt["steps"]]
    return "\n".join(lines)


def message(text: str) -> dict[str, Any]:
    """The event by which the runtime speaks in a conversation."""
    return {"type": "message", "role": "user", "content": text, "actor": "system"}


def settled_after(
    plan: Mapping[str, Any], succeeded: bool, now: int, live: Collection[tuple[str, str]] = ()
) -> dict[str, Any]:
    """The plan after its run ended at `now` (Unix ms): running steps are done or failed, pending ones stay.

    So do those that other runs still work on, `live`.
    """
    status = "done" if succeeded else "failed"
    steps = [
        {**s, "status": status} if s.get("status") == "running" and key(s) not in live else dict(s)
        for s in plan.get("steps", ())
    ]
    after = {**plan, "steps": steps}
    if settled(after):
        after.setdefault("settledAt", now)
    return after
