"""Frames of internal events: one JSON encoding for all sockets that get the same."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET
from seed.events.v1 import events_pb2 as ev
from seed.runs.v1 import runs_pb2
from seed.sessions.v1 import types_pb2

from libs.protocol import ws, ws_json
from libs.protocol.versions import COMPOUND_TRIGGER_PROTOCOL
from services.edge.api import views
from services.edge.domain.frames import Frame, Kind
from services.edge.domain.session_stream import Append, Change, Partial
from services.edge.domain.shims import session_for


def connected(now_ms: int) -> Frame:
    """The first frame of a socket."""
    return Frame(ws_json(ws.WsConnected(connected_at=now_ms)))


def subscribed(key: str, account: str) -> Frame:
    """A subscription holds."""
    return Frame(ws_json(ws.WsSubscribed(key=key, account_id=account)))


def unsubscribed(key: str) -> Frame:
    """A subscription has ended."""
    return Frame(ws_json(ws.WsUnsubscribed(key=key)))


def error(message: str, code: str | None) -> Frame:
    """A frame was refused."""
    return Frame(ws_json(ws.WsError(message=message, code=code or UNSET)))


def session_append(e: types_pb2.SessionEvent) -> Append:
    """A durable session event."""
    event = ws.WsSessionEvent(
        id=e.id, session_id=e.session_id, seq=e.seq, event=msgspec.Raw(e.payload), created_at=e.created_at
    )
    return Append(e.seq, Frame(ws_json(ws.WsSessionAppend(key=f"sessions/{e.session_id}", event=event))))


def session_change(s: types_pb2.Session) -> Change:
    """The state of a session."""
    key = f"sessions/{s.id}"
    payload = ws_json(ws.WsSessionChange(key=key, value=views.session(s, views.SPLICED)))
    before = None
    if s.started_by_trigger:
        whole = views.session(s, views.DECODED)
        shown = session_for(COMPOUND_TRIGGER_PROTOCOL - 1, whole)
        if shown is not whole:
            before = (COMPOUND_TRIGGER_PROTOCOL, ws_json(ws.WsSessionChange(key=key, value=shown)))
    return Change(s.version, Frame(payload, Kind.CHANGE, key, before))


def session_piece(session_id: str, partial_id: str, text: str) -> Frame:
    """The text so far of a block in flight."""
    return _partial_frame(f"sessions/{session_id}", partial_id, ws.SessionPatch(text_delta=text))


def session_partial(p: ev.SessionPartial) -> Partial:
    """Live progress of a turn."""
    key = f"sessions/{p.session_id}"
    usage: Any = msgspec.Raw(p.usage) if p.usage else UNSET
    activity: Any = msgspec.Raw(p.activity) if p.activity else UNSET
    text = p.text_delta

    def build(shown: str) -> Frame:
        patch = ws.SessionPatch(text_delta=shown or UNSET, done=p.done or UNSET, usage=usage, activity=activity)
        return _partial_frame(key, p.partial_id, patch)

    def rest(known: int) -> Frame | None:
        shown = text[known:]
        return build(shown) if shown or p.done or p.usage or p.activity else None

    return Partial(p.partial_id, p.offset, text, p.done, build(text), rest)


def _partial_frame(key: str, partial_id: str, patch: ws.SessionPatch) -> Frame:
    payload = ws_json(ws.WsSessionPartial(key=key, partial_id=partial_id, patch=patch))
    return Frame(payload, Kind.PARTIAL, (key, partial_id))


def agent_change(a: types_pb2.Agent, role: str) -> Frame:
    """The state of an agent as an account with `role` sees it."""
    key = f"agents/{a.id}"
    return Frame(ws_json(ws.WsAgentChange(key=key, value=views.agent(a, role))), Kind.CHANGE, key)


def account_hint(account: str, agent_id: str, hint: ev.AccountHint) -> Frame:
    """A hint to refetch, under the account key of `account`."""
    value = ws.AccountHint(reason=hint.reason, agent_id=agent_id or UNSET, session_id=hint.session_id or UNSET)
    payload = ws_json(ws.WsAccountChange(key=f"account/{account}", value=value))
    # Equal hints say the same twice.
    return Frame(payload, Kind.CHANGE, payload)


def run_change(r: runs_pb2.Run, root_run_id: str) -> Change:
    """The state of a run under the key of `root_run_id`."""
    payload = ws_json(ws.WsRunChange(key=f"runs/{root_run_id}", value=views.run(r, views.SPLICED, children=False)))
    return Change(r.version, Frame(payload, Kind.CHANGE, f"runs/{r.id}"))


def run_append(e: runs_pb2.JournalEntry, root_run_id: str) -> Append:
    """A journal entry under the key of `root_run_id`."""
    event = ws.WsRunAppend(
        key=f"runs/{root_run_id}", run_id=e.run_id, seq=e.seq, entry=msgspec.Raw(e.entry), created_at=e.created_at
    )
    return Append(e.seq, Frame(ws_json(event)))


def run_partial(p: ev.RunPartial) -> Frame:
    """Live progress of a run."""
    key = f"runs/{p.root_run_id}"
    patch: Any = msgspec.Raw(p.patch)
    event = ws.WsRunPartial(key=key, run_id=p.run_id, partial_id=p.partial_id, patch=patch)
    return Frame(ws_json(event), Kind.PARTIAL, (key, p.partial_id))
