"""Building events: each function gives (subject, serialized Event)."""

from __future__ import annotations

import random

from seed.events.v1 import events_pb2 as ev
from seed.runs.v1 import runs_pb2
from seed.sessions.v1 import types_pb2 as st

from libs.events.subjects import REVOKED, event_subject

Message = tuple[str, bytes]

SPACE_REASONS = frozenset(
    ("agent-memory-changed", "agent-tools-changed", "trigger-created", "trigger-updated", "trigger-deleted")
)
"""Reasons of hints about the Space of an agent. They have a subject of their own, so that they are heard alone."""


def _event_id() -> str:
    # Unique, not secret: a UUID would ask the kernel for entropy, several times a turn.
    return f"{random.getrandbits(128):032x}"


def _event(kind: str, account: str, agent_id: str, **body: object) -> Message:
    event = ev.Event(id=_event_id(), account=account, agent_id=agent_id, **body)  # pyright: ignore[reportArgumentType]
    return event_subject(account, agent_id, kind), event.SerializeToString()


def session_appended(account: str, agent_id: str, event: st.SessionEvent) -> Message:
    """A durable session event."""
    return _event("session_appended", account, agent_id, session_appended=ev.SessionAppended(event=event))


def session_changed(session: st.Session) -> Message:
    """The newest state of a session."""
    return _event(
        "session_changed", session.account, session.agent_id, session_changed=ev.SessionChanged(session=session)
    )


def session_partial(account: str, agent_id: str, partial: ev.SessionPartial) -> Message:
    """Live progress of a turn; not durable."""
    return _event("session_partial", account, agent_id, session_partial=partial)


def agent_changed(agent: st.Agent) -> Message:
    """The newest state of an agent, without a role."""
    return _event("agent_changed", agent.account, agent.id, agent_changed=ev.AgentChanged(agent=agent))


def account_hint(
    account: str, reason: str, *, agent_id: str = "", session_id: str = "", only: tuple[str, ...] = ()
) -> Message:
    """A hint to refetch.

    Heard by the owner `account` and the accepted members of `agent_id`. With `only`, it is heard by those accounts
    alone; send one a listener's account, since it goes to the first account's own subject.
    """
    to = only[0] if only else account
    hint = ev.AccountHint(reason=reason, session_id=session_id, accounts=only)
    event = ev.Event(id=_event_id(), account=account, agent_id=agent_id, account_hint=hint)
    kind = "space_hint" if reason in SPACE_REASONS else "account_hint"
    subject = event_subject(to, "" if only else agent_id, kind)
    return subject, event.SerializeToString()


def run_changed(run: runs_pb2.Run) -> Message:
    """The newest state of a run."""
    return _event("run_changed", run.account, run.agent_id, run_changed=ev.RunChanged(run=run))


def run_partial(account: str, agent_id: str, partial: ev.RunPartial) -> Message:
    """Live progress of a run; not durable."""
    return _event("run_partial", account, agent_id, run_partial=partial)


def signer_revoked(account: str, signer: str) -> Message:
    """A key signs for an account no longer. Not an Event: every edge hears it."""
    return REVOKED, ev.SignerRevoked(account=account, signer=signer).SerializeToString()
