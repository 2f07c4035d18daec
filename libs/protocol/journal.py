"""Entries of a script run's journal. `call_seq` joins the entries of one ctx call; `key` is its replay content key."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .base import Json, Wire
from .runs import RunPlan


class JournalHead(Wire, kw_only=True):
    """What all entries carry."""

    call_seq: int
    key: str | UnsetType = UNSET


class JournalCall(JournalHead, kw_only=True, tag_field="kind", tag="call"):
    """A tool call or a delegation begins."""

    op: Literal["tool", "agent"]
    tool: str | UnsetType = UNSET
    input: Json | UnsetType = UNSET
    child_run_id: str | UnsetType = UNSET
    description: str | UnsetType = UNSET


class JournalError(Wire, kw_only=True):
    """Why a call failed."""

    code: str
    message: str
    retryable: bool | UnsetType = UNSET


class JournalResult(JournalHead, kw_only=True, tag_field="kind", tag="result"):
    """A call ended."""

    status: Literal["succeeded", "failed"]
    output: Json | UnsetType = UNSET
    error: JournalError | UnsetType = UNSET


class JournalTimer(JournalHead, kw_only=True, tag_field="kind", tag="timer"):
    """A sleep begins."""

    wake_at: int


class JournalFired(JournalHead, kw_only=True, tag_field="kind", tag="fired"):
    """A sleep ended."""


class JournalWait(JournalHead, kw_only=True, tag_field="kind", tag="wait"):
    """A wait for an event begins."""

    wait_id: str
    match: Json
    timeout_at: int | UnsetType = UNSET
    label: str | UnsetType = UNSET


class RunEventDelivery(Wire, kw_only=True):
    """What satisfied a wait."""

    source: Literal["signal", "activity", "trigger"]
    signal: str | UnsetType = UNSET
    payload: Json | UnsetType = UNSET


class JournalEvent(JournalHead, kw_only=True, tag_field="kind", tag="event"):
    """A wait ended; without `delivery` it timed out."""

    wait_id: str
    delivery: RunEventDelivery | UnsetType = UNSET


class JournalNow(JournalHead, kw_only=True, tag_field="kind", tag="now"):
    """The clock as the script read it."""

    value: int


class JournalLog(JournalHead, kw_only=True, tag_field="kind", tag="log"):
    """A line the script logged."""

    level: Literal["debug", "info", "warn", "error"]
    message: str
    data: Json | UnsetType = UNSET


class JournalStep(JournalHead, kw_only=True, tag_field="kind", tag="step"):
    """A step of the script begins or ends."""

    step_id: str
    label: str
    phase: Literal["start", "end"]
    ok: bool | UnsetType = UNSET


class JournalPlan(JournalHead, kw_only=True, tag_field="kind", tag="plan"):
    """The script set the run's plan."""

    plan: RunPlan


JournalEntry = (
    JournalCall
    | JournalResult
    | JournalTimer
    | JournalFired
    | JournalWait
    | JournalEvent
    | JournalNow
    | JournalLog
    | JournalStep
    | JournalPlan
)
