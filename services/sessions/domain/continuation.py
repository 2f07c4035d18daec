"""Rules of a session that goes on in another one (runtime.md, section 12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from libs.protocol import json_bytes

CARRY, CLOSE, OMIT = "carry", "close", "omit"
TRANSFERS = (CARRY, CLOSE, OMIT)
REASONS = ("topic_change", "phase_change", "refocus", "context_pressure", "user_request", "other")

PENDING = "continue_session: helpers of this conversation are still at work. Wait for their answers first."
NOTHING_NEW = (
    "continue_session: this conversation has just been continued, and nobody has said anything new since. Answer here."
)
_SETTLED = ("done", "failed", "skipped")

Plan = dict[str, Any]


def no_passage(session_id: str) -> str:
    """The refusal of a source that is not there."""
    return f"continue_session: session {session_id} of this agent has no such events"


def was_copied(payloads: Iterable[bytes]) -> bool:
    """Whether a message came here as the copy that a continuation made."""
    return any("continuedFrom" in (msgspec.json.decode(payload).get("meta") or {}) for payload in payloads)


def copied(payload: bytes, session_id: str, event_id: str, seq: int, successor_id: str) -> bytes:
    """The payload of a message of a session as its successor gets it, saying where it stood."""
    message: dict[str, Any] = msgspec.json.decode(payload)
    origin = {"sessionId": session_id, "eventId": event_id, "seq": seq}
    message["meta"] = {**(message.get("meta") or {}), "continuedFrom": origin}
    if message.get("attachments"):
        message["attachments"] = [{**a, "sessionId": successor_id} for a in message["attachments"]]
    return json_bytes(message)


def attachment_ids(payloads: Iterable[bytes]) -> list[str]:
    """Ids of the attachments of these messages."""
    return [str(a.get("id")) for payload in payloads for a in msgspec.json.decode(payload).get("attachments") or ()]


def handoff(text: str) -> bytes:
    """JSON of the event a successor begins with."""
    return json_bytes({"type": "message", "role": "user", "content": text, "actor": "system"})


def link(continuation_id: str, session_id: str, title: str | None, reason: str, now: int) -> bytes:
    """JSON of the public SessionContinuationLink to a session. `now` is Unix milliseconds."""
    value: dict[str, Any] = {"continuationId": continuation_id, "sessionId": session_id}
    if title is not None:
        value["title"] = title
    return json_bytes({**value, "reason": reason, "createdAt": now})


def answer(tool_call_id: str, continuation_id: str, successor_id: str, title: str, duration_ms: int) -> bytes:
    """JSON of the event that answers the call."""
    return json_bytes(
        {
            "type": "tool_result",
            "toolCallId": tool_call_id,
            "name": "continue_session",
            "output": {"continuationId": continuation_id, "successorSessionId": successor_id, "title": title},
            "meta": {"durationMs": duration_ms},
        }
    )


def plans(
    plan: Mapping[str, Any] | None, transfer: str, successor_run_id: str, now: int, *, last: bool
) -> tuple[Plan | None, Plan | None]:
    """The plan that the session keeps and the one its successor gets. `now` is Unix milliseconds.

    An unfinished plan that is carried moves: the run of the successor owns it. One that is closed ends here, with what
    is open skipped. Otherwise it stays as any plan does whose run has succeeded: running steps are done when this was
    the `last` run at work.
    """
    if plan is None:
        return None, None
    steps: Sequence[Mapping[str, Any]] = plan.get("steps", ())
    if all(step.get("status") in _SETTLED for step in steps):
        return dict(plan), None
    if transfer == CARRY:
        return None, {**plan, "ownerRunId": successor_run_id}
    after = {
        CLOSE: {"pending": "skipped", "running": "skipped"},
        OMIT: {"running": "done"} if last else {},
    }[transfer]
    kept = {**plan, "steps": [{**step, "status": after.get(step["status"], step["status"])} for step in steps]}
    if all(step["status"] in _SETTLED for step in kept["steps"]):
        kept["settledAt"] = now
    return kept, None
