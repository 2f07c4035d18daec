"""ListRuns takes exactly one selector."""

from __future__ import annotations

from dataclasses import dataclass

from libs.errors import Invalid

LIMIT = 50
"""Default page of ListRuns."""


@dataclass(frozen=True, slots=True)
class Selector:
    """What is listed: `kind` is root_run_id, session_id or agent_id."""

    kind: str
    value: str


def choose(**selectors: str | None) -> Selector:
    """The one selector that was given. Raises Invalid for none or several (actions.md, Runs)."""
    given = [Selector(kind, value) for kind, value in selectors.items() if value is not None]
    if not given:
        raise Invalid("ListRuns requires rootRunId, sessionId, or agentId")
    if len(given) > 1:
        raise Invalid("ListRuns takes exactly one of rootRunId, sessionId, agentId")
    return given[0]
