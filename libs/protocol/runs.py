"""Runs and their journals."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .base import Json, OpenMap, Wire

RunStatus = Literal["queued", "claimed", "running", "waiting", "succeeded", "failed", "canceled"]
RunKind = Literal["agent", "workflow"]
RunOrigin = Literal["user", "trigger", "agent", "workflow", "system"]
PlanStepStatus = Literal["pending", "running", "done", "failed", "skipped"]


class AgentRunUsage(Wire, kw_only=True):
    """Tokens, counted by the provider."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    total: int


class ChildrenUsage(AgentRunUsage, kw_only=True):
    """Tokens of all runs below one."""

    runs: int


class RunUsageInfo(AgentRunUsage, kw_only=True):
    """Tokens of a run, its children apart."""

    children: ChildrenUsage | UnsetType = UNSET


class RunPlanStep(Wire, kw_only=True):
    """A step of a plan."""

    id: str
    label: str
    status: PlanStepStatus
    resolved_by: Literal["runtime"] | UnsetType = UNSET
    """Set by the runtime only."""


class RunPlan(Wire, kw_only=True):
    """The plan of a session or run."""

    title: str | UnsetType = UNSET
    steps: list[RunPlanStep]
    owner_run_id: str | UnsetType = UNSET
    settled_at: int | UnsetType = UNSET


class RunWaitInfo(Wire, kw_only=True):
    """What a parked run waits for."""

    reason: Literal["children", "timer", "event", "budget-pause"]
    wake_at: int | UnsetType = UNSET
    pending_children: int | UnsetType = UNSET
    label: str | UnsetType = UNSET
    answer_with: str | UnsetType = UNSET


class RunErrorInfo(Wire, kw_only=True):
    """Why a run failed."""

    code: str
    message: str
    stack: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    call_seq: int | UnsetType = UNSET
    detail: Json | UnsetType = UNSET


class TypedResultObligation(Wire, kw_only=True, tag_field="kind", tag="typed-result"):
    """The run owes its declared result."""


class PlanObligation(Wire, kw_only=True, tag_field="kind", tag="plan"):
    """The run owes these steps, by label."""

    steps: list[str]


UnmetObligation = TypedResultObligation | PlanObligation


class RunInfo(Wire, kw_only=True):
    """A run."""

    id: str
    account: str
    root_run_id: str
    parent_run_id: str | UnsetType = UNSET
    parent_tool_call_id: str | UnsetType = UNSET
    continued_from_run_id: str | UnsetType = UNSET
    depth: int
    kind: RunKind
    agent_id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    origin: RunOrigin
    title: str
    step_label: str | UnsetType = UNSET
    plan_step_id: str | UnsetType = UNSET
    source_text: str | UnsetType = UNSET
    """Source of a workflow run."""
    child_run_count: int | UnsetType = UNSET
    """In GetRun and ListRuns only; absent when zero."""
    status: RunStatus
    wait: RunWaitInfo | UnsetType = UNSET
    plan: RunPlan | UnsetType = UNSET
    error: RunErrorInfo | UnsetType = UNSET
    unmet_obligations: list[UnmetObligation] | UnsetType = UNSET
    usage: RunUsageInfo | UnsetType = UNSET
    created_at: int
    started_at: int | UnsetType = UNSET
    finished_at: int | UnsetType = UNSET
    updated_at: int


class RunJournalEntryInfo(Wire, kw_only=True):
    """A journal entry at its place; `entry` is the open form of one of the types in `journal.py`."""

    run_id: str
    seq: int
    entry: OpenMap
    created_at: int
