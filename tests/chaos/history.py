"""What a chaos run leaves behind, as plain records: what clients were told, what the logs hold, what listeners saw."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

TERMINAL = frozenset({"succeeded", "failed", "canceled"})
TAG = re.compile(r"\[([mc]-[\w-]+) (\w+)\]")
FINAL = re.compile(r"^final \d+ to [mc]-[\w-]+\.$")
"""The text by which the scripted model ends a turn; its number is used once."""
STOPPED = "Stopped."


def tag_of(text: object) -> str:
    """The tag of a message; empty without one."""
    found = TAG.search(text) if isinstance(text, str) else None
    return found[1] if found else ""


@dataclass(slots=True)
class Sent:
    """A message as its sender knows it.

    `outcome` is ok (answered with 200), failed (answered with the failure of its turn), or what else came of it.
    """

    tag: str
    session: str
    outcome: str
    answer: str = ""
    """The assistantEventId of an ok."""


@dataclass(slots=True)
class Event:
    """A durable event; `run` wrote it ("" for what users said)."""

    id: str
    seq: int
    payload: dict[str, Any]
    run: str = ""

    @property
    def type(self) -> str:
        """Type of the payload."""
        return self.payload["type"]

    @property
    def text(self) -> str:
        """Content of an assistant's message, else empty."""
        said = self.type == "message" and self.payload.get("role") == "assistant"
        return self.payload["content"] if said else ""


@dataclass(slots=True)
class Turn:
    """A row of the turn ledger. `messages` are the events it answers."""

    run: str
    number: int
    messages: list[str]
    state: str = "done"
    status: str = "succeeded"
    answer: str = ""
    retry: bool = False
    behind: bool = False
    """Whether another turn was live when this one was opened: its sender is not waited for."""
    parent: str = ""
    call: str = ""
    finished_at: int = 0
    continued: str = ""
    """The session that answers in its place."""


@dataclass(slots=True)
class Run:
    """A run as the API shows it."""

    id: str
    status: str
    parent: str = ""


@dataclass(slots=True)
class Session:
    """A session at rest."""

    id: str
    status: str
    last_seq: int
    events: list[Event] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    before: str = ""
    """The session that it goes on from."""


@dataclass(slots=True)
class Seen:
    """What one subscriber of a session got, in order: (seq, event id), from `after` on."""

    name: str
    session: str
    events: list[tuple[int, str]]
    after: int = 0
    status: str = ""
    """The session's status in the last `change`."""


@dataclass(slots=True)
class Followed:
    """What one subscriber of a run tree got, in order: (run, status, updatedAt)."""

    name: str
    states: list[tuple[str, str, int]]


@dataclass(slots=True)
class Shown:
    """What the model was shown as the result of a call, each different text once."""

    call: str
    tool: str
    texts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """Everything there is to check."""

    sent: list[Sent] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    outbox: dict[str, int] = field(default_factory=dict)
    """Rows left, by service."""
    faults: list[str] = field(default_factory=list)
    """What services logged as errors: faults of their own, not of what they depend on."""
