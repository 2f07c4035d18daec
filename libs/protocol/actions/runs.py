"""Actions on runs, and the subscription of the WebSocket."""

from msgspec import UNSET, UnsetType

from ..base import Action, Json
from ..runs import RunStatus


class GetRun(Action, kw_only=True):
    """A run."""

    run_id: str


class ListRuns(Action, kw_only=True):
    """Runs of exactly one of a tree, a session, an agent."""

    root_run_id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    status: RunStatus | UnsetType = UNSET
    limit: int | float | UnsetType = UNSET


class CancelRun(Action, kw_only=True):
    """Cancel a run and all below it."""

    run_id: str


class SignalRun(Action, kw_only=True):
    """Deliver a signal to a waiting run."""

    run_id: str
    signal: str
    payload: Json | UnsetType = UNSET


class GetRunJournal(Action, kw_only=True):
    """The journal of a script run."""

    run_id: str
    after_seq: int | UnsetType = UNSET


class Subscribe(Action, kw_only=True):
    """Events of a key; over the WebSocket only."""

    key: str
    after_seq: int | UnsetType = UNSET


class Unsubscribe(Action, kw_only=True):
    """No more events of a key; over the WebSocket only. Of our own."""

    key: str
