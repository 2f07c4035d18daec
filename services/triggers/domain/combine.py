"""Two activity triggers become one (triggers.md, section 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from libs.errors import Conflict, Invalid
from libs.protocol import limits
from services.triggers.domain.definition import ACTIVITY, ACTIVITY_SOURCES, MERGED, STALE, NewId

Source = Mapping[str, Any]


def check_combinable(first: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Let pass two stored triggers (their `id`, `agent_id`, `kind`, `merged_into`) that can be combined.

    Raises Invalid, or Conflict for one that was merged before.
    """
    if first["id"] == other["id"]:
        raise Invalid("Only activity triggers that differ can be combined")
    if first["agent_id"] != other["agent_id"] or not {first["kind"], other["kind"]} <= ACTIVITY_SOURCES:
        raise Invalid("Only activity triggers of the same agent can be combined")
    if first["merged_into"] is not None or other["merged_into"] is not None:
        raise Conflict(MERGED)


def check_current(updated_at: Iterable[int], expected: Iterable[int]) -> None:
    """Raises Conflict when one of them has changed since the client saw it."""
    if tuple(updated_at) != tuple(expected):
        raise Conflict(STALE)


def combined(first: Source, other: Source, new_id: NewId) -> dict[str, Any]:
    """A source that fires for what either fires for. Raises Invalid when it would have too many conditions.

    A single source becomes a condition; equal ones are kept once; an id that is taken is replaced.
    """
    conditions: list[dict[str, Any]] = []
    for condition in [*_conditions(first), *_conditions(other)]:
        if any(_same(condition["source"], kept["source"]) for kept in conditions):
            continue
        taken = {kept["id"] for kept in conditions}
        while not condition["id"] or condition["id"] in taken:
            condition["id"] = new_id()
        conditions.append(condition)
    if len(conditions) > limits.ACTIVITY_CONDITIONS:
        raise Invalid("Too many trigger conditions")
    return {"type": ACTIVITY, "conditions": conditions}


def _conditions(source: Source) -> list[dict[str, Any]]:
    if source["type"] == ACTIVITY:
        return [dict(condition) for condition in source["conditions"]]
    return [{"id": "", "source": dict(source)}]


def _same(one: Source, other: Source) -> bool:
    return {key: _as_set(value) for key, value in one.items()} == {key: _as_set(value) for key, value in other.items()}


def _as_set(value: Any) -> Any:
    # The order of accounts and of event types says nothing.
    return frozenset(value) if isinstance(value, list) else value
