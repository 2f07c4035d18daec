"""Events between services: subjects, building, publishing, listening.

NATS carries news, never truth: a message may be lost, repeated or reordered, so every event holds the keys by which a
reader notices (`proto/seed/events/v1`). One message an event; subjects start with the owner and the agent, so a
listener of an account or of an agent needs one subscription.
"""

from libs.events.build import (
    account_hint,
    agent_changed,
    run_changed,
    run_partial,
    session_appended,
    session_changed,
    session_partial,
    signer_revoked,
)
from libs.events.bus import Bus, Subscription
from libs.events.subjects import (
    CANCEL,
    REVOKED,
    SPACE_HINTS,
    WORK,
    account_subject,
    agent_of,
    agent_subject,
    edge_subject,
    event_subject,
    tree_subjects,
)

__all__ = [
    "CANCEL",
    "REVOKED",
    "SPACE_HINTS",
    "WORK",
    "Bus",
    "Subscription",
    "account_hint",
    "account_subject",
    "agent_changed",
    "agent_of",
    "agent_subject",
    "edge_subject",
    "event_subject",
    "run_changed",
    "run_partial",
    "session_appended",
    "session_changed",
    "session_partial",
    "signer_revoked",
    "tree_subjects",
]
