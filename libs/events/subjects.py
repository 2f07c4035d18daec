"""NATS subjects. Account ids are base58 and other ids UUIDs the server minted, so none holds a dot or a wildcard."""

from __future__ import annotations

import re

_ROOT = "seed.v1"
NO_AGENT = "_"

WORK = "seed.internal.v1.work"
"""WorkHint: workers, look at the queue."""
CANCEL = "seed.internal.v1.cancel"
"""CancelHint: workers that hold these runs, stop them."""
REVOKED = "seed.internal.v1.revoked"
"""SignerRevoked: edges, let go of what this key subscribed to."""

SPACE_HINTS = f"{_ROOT}.*.*.space_hint"
"""Account hints about what is in the Space of an agent: its memory, tools and triggers. Nothing else is on it."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")


def _token(value: str) -> str:
    # Strict: a dot or a wildcard would reach other accounts' events, and "_" is the place of no agent.
    if not _TOKEN.fullmatch(value) or value == NO_AGENT:
        raise ValueError(f"not usable in a subject: {value!r}")
    return value


def event_subject(owner: str, agent_id: str, kind: str) -> str:
    """Subject of one event of an agent (agent_id empty: of the account itself). `kind` is the oneof field's name.

    This and the other builders raise ValueError for an id that does not fit into a subject.
    """
    return f"{_ROOT}.{_token(owner)}.{_token(agent_id) if agent_id else NO_AGENT}.{_token(kind)}"


def agent_of(subject: str) -> str:
    """The agent that an event's subject names; empty for none."""
    agent_id = subject.split(".")[3]
    return "" if agent_id == NO_AGENT else agent_id


def account_subject(account: str) -> str:
    """Wildcard of all events of an account and of the agents it owns."""
    return f"{_ROOT}.{_token(account)}.>"


def agent_subject(owner: str, agent_id: str) -> str:
    """Wildcard of all events of one agent."""
    return f"{_ROOT}.{_token(owner)}.{_token(agent_id)}.>"


def tree_subjects(owner: str) -> tuple[str, ...]:
    """All events about runs of an account: those of one tree may belong to several of its agents."""
    return tuple(f"{_ROOT}.{_token(owner)}.*.{kind}" for kind in ("run_changed", "run_appended", "run_partial"))


def edge_subject(edge_id: str) -> str:
    """Where TurnSettled messages for one edge process go."""
    return f"seed.internal.v1.edge.{_token(edge_id)}"
