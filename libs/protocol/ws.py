"""WebSocket events: JSON text frames from the server (websocket.md)."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from .agents import AgentInfo
from .base import Wire
from .runs import AgentRunUsage, RunInfo
from .sessions import SessionInfo


class AgentRunActivity(Wire, kw_only=True):
    """What a turn is doing right now."""

    phase: Literal["starting", "thinking", "responding", "tool", "finalizing"]
    tool_name: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    output_tail: str | UnsetType = UNSET


class WsConnected(Wire, kw_only=True, tag_field="_", tag="connected"):
    """The first frame of a socket."""

    connected_at: int


class WsSubscribed(Wire, kw_only=True, tag_field="_", tag="subscribed"):
    """A subscription holds; its replay follows."""

    key: str
    account_id: str


class WsUnsubscribed(Wire, kw_only=True, tag_field="_", tag="unsubscribed"):
    """A subscription has ended, if there was one. Of our own; only ever the answer to Unsubscribe."""

    key: str


class WsSessionEvent(Wire, kw_only=True):
    """A `SessionEvent` whose payload is JSON text, spliced into the frame as it is."""

    id: str
    session_id: str
    seq: int
    event: msgspec.Raw
    created_at: int


class WsSessionAppend(Wire, kw_only=True, tag_field="_", tag="append"):
    """A durable session event."""

    key: str
    event: WsSessionEvent


class SessionPatch(Wire, kw_only=True):
    """Live progress of a turn."""

    text_delta: str | UnsetType = UNSET
    done: bool | UnsetType = UNSET
    """The text block ended; its durable append follows."""
    usage: AgentRunUsage | UnsetType = UNSET
    activity: AgentRunActivity | UnsetType = UNSET


class WsSessionPartial(Wire, kw_only=True, tag_field="_", tag="appendPartial"):
    """Progress on the session key."""

    key: str
    partial_id: str
    patch: SessionPatch


class WsSessionChange(Wire, kw_only=True, tag_field="_", tag="change"):
    """Fields of a session changed."""

    key: str
    value: SessionInfo


class WsAgentChange(Wire, kw_only=True, tag_field="_", tag="change"):
    """An agent changed."""

    key: str
    value: AgentInfo


class AccountHint(Wire, kw_only=True):
    """Why to fetch again (the reasons are listed in websocket.md)."""

    reason: str
    agent_id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


class WsAccountChange(Wire, kw_only=True, tag_field="_", tag="change"):
    """A hint on the account key."""

    key: str
    value: AccountHint


class WsRunChange(Wire, kw_only=True, tag_field="_", tag="change"):
    """A run of the tree changed."""

    key: str
    value: RunInfo


class WsRunAppend(Wire, kw_only=True, tag_field="_", tag="append"):
    """A journal entry; `entry` is JSON text, spliced in as it is."""

    key: str
    run_id: str
    seq: int
    entry: msgspec.Raw
    created_at: int


class RunProgress(Wire, kw_only=True):
    """How far a script says it is."""

    fraction: int | float | UnsetType = UNSET
    label: str | UnsetType = UNSET


class RunPatch(Wire, kw_only=True):
    """Live progress of a script."""

    progress: RunProgress | UnsetType = UNSET
    activity: AgentRunActivity | UnsetType = UNSET
    usage: AgentRunUsage | UnsetType = UNSET


class WsRunPartial(Wire, kw_only=True, tag_field="_", tag="appendPartial"):
    """Progress on the runs key."""

    key: str
    run_id: str
    partial_id: str
    patch: RunPatch


class WsError(Wire, kw_only=True, tag_field="_", tag="error"):
    """A frame was refused. `code` only with `protocol_too_old`."""

    message: str
    code: str | UnsetType = UNSET


WsEvent = (
    WsConnected
    | WsSubscribed
    | WsUnsubscribed
    | WsSessionAppend
    | WsSessionPartial
    | WsSessionChange
    | WsAgentChange
    | WsAccountChange
    | WsRunChange
    | WsRunAppend
    | WsRunPartial
    | WsError
)

_BY_NAME: dict[str, type[Wire]] = {
    "connected": WsConnected,
    "subscribed": WsSubscribed,
    "unsubscribed": WsUnsubscribed,
    "error": WsError,
}
_BY_KEY: dict[tuple[str, str], type[Wire]] = {
    ("append", "sessions"): WsSessionAppend,
    ("append", "runs"): WsRunAppend,
    ("appendPartial", "sessions"): WsSessionPartial,
    ("appendPartial", "runs"): WsRunPartial,
    ("change", "sessions"): WsSessionChange,
    ("change", "agents"): WsAgentChange,
    ("change", "account"): WsAccountChange,
    ("change", "runs"): WsRunChange,
}


class _Frame(msgspec.Struct):
    name: str = msgspec.field(name="_")
    key: str = ""


def read_ws_event(frame: str | bytes) -> WsEvent | None:
    """The event in a text frame, or None when its kind is unknown (a newer server's). Raises `msgspec.DecodeError`."""
    head = msgspec.json.decode(frame, type=_Frame)
    kind = _BY_NAME.get(head.name) or _BY_KEY.get((head.name, head.key.partition("/")[0]))
    return None if kind is None else msgspec.json.decode(frame, type=kind)  # pyright: ignore[reportReturnType]
