"""Ended runs as a source, and the guard against loops (triggers.md, section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.triggers.domain.firing import Activation

HOPS = 8
"""Firings between a run and the first cause that is looked for."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has reached succeeded, failed or canceled. Ids are empty when there is none, or it is deleted."""

    run_id: str
    root_run_id: str
    account: str
    agent_id: str
    session_id: str
    title: str
    status: str
    error: str = ""


def matches(source: Mapping[str, Any], run: EndedRun) -> bool:
    """Whether a run-completed source is about the run; what it does not name may be anything."""
    return (
        source.get("agentId", run.agent_id) == run.agent_id
        and source.get("status", run.status) == run.status
        and source.get("titleMatch", "").lower() in run.title.lower()
    )


def activation(run: EndedRun) -> Activation:
    """What the end of a run is to a trigger."""
    event = {
        "type": "run-completed",
        "runId": run.run_id,
        "runTitle": run.title,
        "runStatus": run.status,
        "agentId": run.agent_id,
    }
    if run.session_id:
        event["sessionId"] = run.session_id
    return Activation(
        key=f"run:{run.run_id}",
        event=event,
        summary=f"{run.title or 'A run'} {run.status}",
        # What a run delegated belongs to whatever began the tree.
        cause_run_id=run.root_run_id,
    )


@dataclass(frozen=True, slots=True)
class Chain:
    """The firings behind a run, newest first: their triggers. `open_end` when there were still more after HOPS."""

    trigger_ids: tuple[str, ...]
    open_end: bool

    def loops(self, trigger_id: str) -> bool:
        """Whether firing this trigger would close a circle, or one may be hidden by the length of the chain."""
        return self.open_end or trigger_id in self.trigger_ids
