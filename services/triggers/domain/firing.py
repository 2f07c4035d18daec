"""What a firing says: to the session that it starts, to the run that it wakes, to readers (triggers.md, section 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.protocol import json_bytes, limits
from libs.protocol.text import byte_length

CREATED, DELIVERED, NO_LISTENER, ERROR = "created", "delivered", "no-listener", "error"
"""Statuses of a firing."""

WAKE = "wake"
_CUT = "\n… (the rest was left out: it is too long for a message)"
_INSTRUCTIONS = (
    "This conversation was started by a trigger, not by a person who is typing. The block above says which trigger it "
    "was and what happened.\n"
    "If the activity is a comment, answer it where it was written, as a threaded reply: use `write` with the target "
    "document's address as `address` (`activity.target.id.id`, else the comment's target fields) and with the options "
    '`action: "comment"` and `replyTo`, the id of the comment that is answered (`activity.comment.id`, else '
    "`activity.commentId.id`). A reply without `replyTo` would begin a thread of its own, which nobody asked for."
)


@dataclass(frozen=True, slots=True)
class Activation:
    """What fires a trigger, once by its `key`. `title` ends the title of the session; the summary does if it is empty.

    `activity_key` is the key of the activity behind it, `matched` the conditions of a compound source that match,
    `cause_run_id` the root of the run whose end it is, `digest` what a repeat with the same key must equal.
    """

    key: str
    event: Mapping[str, Any]
    summary: str
    title: str = ""
    activity_key: str | None = None
    matched: list[dict[str, Any]] | None = None
    cause_run_id: str | None = None
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class Fired:
    """The trigger as it was when it fired. `prompt` are its blocks, `markdown` the same as text."""

    trigger_id: str
    name: str
    source: Mapping[str, Any]
    prompt: list[Any]
    markdown: str


def context(trigger: Fired, firing_id: str, fired_at: int, activation: Activation) -> dict[str, Any]:
    """The AgentSessionTriggerContext of a firing that has just begun."""
    told = {
        **_summary(trigger, firing_id, fired_at, activation),
        "prompt": trigger.markdown,
        "promptBlocks": trigger.prompt,
        "activity": dict(activation.event),
        "status": CREATED,
    }
    return told


def summary_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """The AgentSessionTriggerSummary within a context."""
    return {key: value for key, value in told.items() if key not in ("prompt", "promptBlocks", "activity", "status")}


def _summary(trigger: Fired, firing_id: str, fired_at: int, activation: Activation) -> dict[str, Any]:
    told: dict[str, Any] = {
        "triggerId": trigger.trigger_id,
        "triggerName": trigger.name,
        "firingId": firing_id,
        # The key that it fires once by: readers count on a text here, also where there is no activity.
        "activityKey": activation.key,
        "activitySummary": activation.summary,
        "source": dict(trigger.source),
        "firedAt": fired_at,
    }
    if activation.matched is not None:
        told["matchedConditions"] = activation.matched
    return told


def title(name: str, summary: str) -> str:
    """Title of the session: `<trigger name> — <summary>` on one line, cut to what a title may have."""
    text = " ".join(f"{name} — {summary}".split())
    if byte_length(text) <= limits.LABEL_BYTES:
        return text
    mark = "…"
    cut = text.encode("utf-8", "replace")[: limits.LABEL_BYTES - len(mark.encode())].decode("utf-8", "ignore")
    return cut + mark


def message(told: Mapping[str, Any], activity_key: str | None) -> bytes:
    """JSON of the first message: the prompt, the context, what to do with it. At most what a message may have."""
    about = {
        "triggerId": told["triggerId"],
        "firingId": told["firingId"],
        "activityKey": activity_key,
        "activitySummary": told["activitySummary"],
        "activity": told["activity"],
    }
    pretty = msgspec.json.format(json_bytes(about), indent=2).decode()
    before, after = (
        f"{told['prompt']}\n\n<trigger_context>\n",
        f"\n</trigger_context>\n\n<trigger_instructions>\n{_INSTRUCTIONS}\n</trigger_instructions>",
    )
    # A prompt alone may be as large as a message, so the context always keeps some room.
    room = max(limits.MESSAGE_BYTES // 4, limits.MESSAGE_BYTES - byte_length(before) - byte_length(after))
    if byte_length(pretty) > room:
        pretty = pretty.encode()[: room - byte_length(_CUT)].decode("utf-8", "ignore") + _CUT
    text = before + pretty + after
    return json_bytes({"type": "message", "role": "user", "content": text, "rawMarkdown": text, "actor": "trigger"})


def signal_payload(continuation: Mapping[str, Any], event: Mapping[str, Any]) -> bytes:
    """JSON of what a woken run gets: the continuation's payload, else the event."""
    return json_bytes(continuation.get("payload", event))


def run_id(firing_id: str) -> str:
    """The run that a firing starts."""
    return f"firing-{firing_id}"


def firing_of(run: str) -> str | None:
    """The firing that started a run; None for other runs."""
    found = run.removeprefix("firing-")
    return found if found != run else None
