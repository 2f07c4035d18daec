"""What is told of a change, in the order of telling (websocket.md, sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Iterable

from seed.sessions.v1 import types_pb2 as pb

from libs import events
from libs.store import Emitter


def appended(tx: Emitter, owner: str, agent_id: str, stored: Iterable[pb.SessionEvent]) -> None:
    """Durable events, in seq order."""
    for event in stored:
        tx.emit(*events.session_appended(owner, agent_id, event))


def session(tx: Emitter, changed: pb.Session) -> None:
    """The new state of a session."""
    tx.emit(*events.session_changed(changed))


def agent(tx: Emitter, changed: pb.Agent) -> None:
    """The new state of an agent; `changed` carries no role."""
    tx.emit(*events.agent_changed(changed))


def session_hint(tx: Emitter, reason: str, about: pb.Session) -> None:
    """A hint about a session, to the owner and the members of its agent."""
    tx.emit(*events.account_hint(about.account, reason, agent_id=about.agent_id, session_id=about.id))


def agent_hint(tx: Emitter, reason: str, owner: str, agent_id: str) -> None:
    """A hint about an agent, to its owner and members."""
    tx.emit(*events.account_hint(owner, reason, agent_id=agent_id))


def private_hint(tx: Emitter, reason: str, owner: str, agent_id: str, account: str) -> None:
    """A hint about an agent that one account alone hears."""
    tx.emit(*events.account_hint(owner, reason, agent_id=agent_id, only=(account,)))
