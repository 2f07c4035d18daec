"""What clients of an older protocol are shown instead (envelope.md, section 5)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from libs.protocol.sessions import SessionInfo
from libs.protocol.versions import COMPOUND_TRIGGER_PROTOCOL, COMPOUND_TRIGGER_SOURCES


def session_for(protocol: int, session: SessionInfo) -> SessionInfo:
    """A session as a client of `protocol` knows it.

    A trigger's source that came later is shown as the first condition that matched, when that is a source of its time;
    otherwise what started the session is left out. Never half a rule.
    """
    # Spliced from the owner as it is, so it is a plain map here.
    started: object = session.started_by_trigger
    if protocol >= COMPOUND_TRIGGER_PROTOCOL or not isinstance(started, dict):
        return session
    if _known(started.get("source")):
        return session
    matched = started.get("matchedConditions")
    first = matched[0].get("source") if isinstance(matched, list) and matched and isinstance(matched[0], dict) else None
    if not _known(first):
        return replace(session, started_by_trigger=UNSET)
    shown = {key: value for key, value in started.items() if key != "matchedConditions"} | {"source": first}
    return replace(session, started_by_trigger=shown)  # pyright: ignore[reportArgumentType]


def sessions_for(protocol: int, sessions: Sequence[SessionInfo]) -> list[SessionInfo]:
    """`session_for` of each."""
    if protocol >= COMPOUND_TRIGGER_PROTOCOL:
        return list(sessions)
    return [session_for(protocol, session) for session in sessions]


def _known(source: object) -> bool:
    return isinstance(source, dict) and source.get("type") not in COMPOUND_TRIGGER_SOURCES
