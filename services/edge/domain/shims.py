"""What clients of an older protocol are shown instead (envelope.md, section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from libs.errors import TooOld
from libs.protocol.sessions import SessionInfo
from libs.protocol.triggers import AgentTriggerInfo
from libs.protocol.versions import COMPOUND_TRIGGER_PROTOCOL, COMPOUND_TRIGGER_SOURCES

TRIGGER_TOO_OLD = "This trigger needs a newer client"


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
    return replace(session, started_by_trigger=_by_first_condition(started))


def context_for(protocol: int, context: Any) -> Any:
    """What started a session as a client of `protocol` knows it, by the same rule; UNSET when it is left out."""
    if protocol >= COMPOUND_TRIGGER_PROTOCOL or not isinstance(context, dict) or _known(context.get("source")):
        return context
    return _by_first_condition(context)


def triggers_for(protocol: int, triggers: Iterable[AgentTriggerInfo]) -> list[AgentTriggerInfo]:
    """The triggers that a client of `protocol` knows, without what it does not."""
    if protocol >= COMPOUND_TRIGGER_PROTOCOL:
        return list(triggers)
    return [replace(shown, merged_into=UNSET) for shown in triggers if _known(shown.source)]


def trigger_for(protocol: int, trigger: AgentTriggerInfo) -> AgentTriggerInfo:
    """A trigger as a client of `protocol` knows it. Raises TooOld for one that it does not."""
    shown = triggers_for(protocol, [trigger])
    if not shown:
        raise TooOld(TRIGGER_TOO_OLD)
    return shown[0]


def check_source(protocol: int, sent: object) -> None:
    """Raises TooOld when a client of `protocol` sends a source that came later."""
    source = sent.get("source") if isinstance(sent, dict) else None
    if protocol < COMPOUND_TRIGGER_PROTOCOL and isinstance(source, dict) and not _known(source):
        raise TooOld(TRIGGER_TOO_OLD)


def sessions_for(protocol: int, sessions: Sequence[SessionInfo]) -> list[SessionInfo]:
    """`session_for` of each."""
    if protocol >= COMPOUND_TRIGGER_PROTOCOL:
        return list(sessions)
    return [session_for(protocol, session) for session in sessions]


def _by_first_condition(told: Mapping[str, Any]) -> Any:
    matched = told.get("matchedConditions")
    first = matched[0].get("source") if isinstance(matched, list) and matched and isinstance(matched[0], dict) else None
    if not _known(first):
        return UNSET
    return {key: value for key, value in told.items() if key != "matchedConditions"} | {"source": first}


def _known(source: object) -> bool:
    kind = source.get("type") if isinstance(source, dict) else None
    return isinstance(source, dict) and not (isinstance(kind, str) and kind in COMPOUND_TRIGGER_SOURCES)
