"""From the durable log of a session to the messages a model provider gets (runtime.md, section 4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from services.runs.providers.contract import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultMessage,
    UserMessage,
)

RESULT_BYTES = 8 * 1024
"""Most bytes of one tool result that the model gets; the stored event keeps all (limits.md)."""

_WAITING = {"status": "running", "note": "The result comes later. Answer the user now."}

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One durable event: its id and its payload."""

    id: str
    payload: Payload


def bounded(text: str, limit: int = RESULT_BYTES) -> str:
    """The text, cut to `limit` UTF-8 bytes with a notice of what is missing."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    shown = raw[:limit].decode("utf-8", "ignore")
    return (
        f"{shown}\n[cut: {limit} of {len(raw)} bytes are shown. Asking again gives the same; "
        "ask for a smaller part instead.]"
    )


def result_text(payload: Payload) -> str:
    """What the model reads of a tool_result: its error, else its output as JSON, bounded."""
    error = payload.get("error")
    if isinstance(error, str):
        return bounded(error)
    return bounded(_json(payload.get("output")))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _framed(value: Any) -> str:
    # Inside a tagged frame a "<" could close the frame early.
    return _json(value).replace("<", "\\u003c")


def _by_user(payload: Payload) -> bool:
    return payload.get("actor") == "user"


def _user_text(payload: Payload) -> str:
    parts: list[str] = []
    meta = payload.get("meta")
    account = meta.get("accountId") if isinstance(meta, Mapping) else None
    if account:
        parts.append(f"<message_sender>{_json({'accountId': account})}</message_sender>")
    parts.append(str(payload.get("content", "")))
    lines = payload.get("contextLines")
    if lines:
        parts.append("<window_context>\n" + "\n".join(map(str, lines)) + "\n</window_context>")
    attachments = payload.get("attachments")
    if attachments:
        parts.append(_attachments(attachments))
    return "\n\n".join(parts)


def _attachments(attachments: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        f"- {a.get('name', 'file')} ({a.get('mimeType') or 'unknown type'}, {a.get('size', 0)} bytes), "
        f"id {a.get('id', '')}: read attachment:{a.get('id', '')}"
        for a in attachments
    ]
    return "<attachments>\n" + "\n".join(rows) + "\n</attachments>"


@dataclass(slots=True)
class _Builder:
    """Collects messages; tool results go behind the assistant message that holds their call."""

    results: dict[str, deque[Payload]]
    messages: list[Message] = field(default_factory=list)
    open_parts: list[TextPart | ToolCallPart] = field(default_factory=list)

    def close(self) -> None:
        if not self.open_parts:
            return
        parts, self.open_parts = self.open_parts, []
        self.messages.append(AssistantMessage(parts))
        self.messages += [self._result(part) for part in parts if isinstance(part, ToolCallPart)]

    def _result(self, call: ToolCallPart) -> ToolResultMessage:
        # Some providers use an id again in a later reply: the n-th result of an id belongs to its n-th call.
        results = self.results.get(call.id)
        if not results:
            return ToolResultMessage(call.id, call.name, _json(_WAITING))
        result = results.popleft()
        return ToolResultMessage(call.id, call.name, result_text(result), "error" in result)

    def user(self, text: str) -> None:
        self.close()
        self.messages.append(UserMessage([TextPart(text)]))


def replay(events: Sequence[LogEvent]) -> list[Message]:
    """The messages of a log, in order.

    A call without a result is one that a parked run still waits for (all others were repaired when the turn began):
    it gets a synthetic result, so that every provider accepts the transcript.
    """
    payloads = [e.payload for e in events]
    calls: set[str] = set()
    user_calls: set[str] = set()
    results: dict[str, deque[Payload]] = {}
    for p in payloads:
        if p.get("type") == "tool_call":
            (user_calls if _by_user(p) else calls).add(str(p.get("id")))
        elif p.get("type") == "tool_result" and not _by_user(p):
            results.setdefault(str(p.get("toolCallId")), deque()).append(p)
    builder = _Builder(results)
    for p in payloads:
        _one(builder, p, calls, user_calls)
    builder.close()
    return builder.messages


def _one(builder: _Builder, p: Payload, calls: set[str], user_calls: set[str]) -> None:
    kind = p.get("type")
    if kind == "message":
        if p.get("role") == "assistant":
            builder.open_parts.append(TextPart(str(p.get("content", ""))))
        elif p.get("role") == "user":
            builder.user(_user_text(p))
    elif kind == "tool_call":
        value = p.get("input")
        if _by_user(p):
            builder.user(f'<user_action verb="{p.get("name", "")}">\n{bounded(_framed(value))}\n</user_action>')
        else:
            arguments = dict(value) if isinstance(value, Mapping) else {}
            builder.open_parts.append(ToolCallPart(str(p.get("id")), str(p.get("name", "")), arguments))
    elif kind == "tool_result":
        call = str(p.get("toolCallId"))
        if _by_user(p):
            error = p.get("error")
            shown = _framed(error if isinstance(error, str) else p.get("output"))
            builder.user(f'<user_action_result verb="{p.get("name", "")}">\n{bounded(shown)}\n</user_action_result>')
        elif call in calls:
            # What the assistant says next, it says knowing the result.
            builder.close()
        elif call not in user_calls:
            # No call to hang it on: providers refuse an orphan, so it is told as text where it stands.
            builder.user(f'<tool_result name="{p.get("name", "")}">\n{result_text(p)}\n</tool_result>')


def concurrent_messages(events: Sequence[LogEvent], own: Sequence[str]) -> Message | None:
    """For a turn that was queued behind another: which messages it is to answer."""
    wanted = set(own)
    rows: list[dict[str, Any]] = []
    for e in events:
        if e.id in wanted:
            meta = e.payload.get("meta")
            account = meta.get("accountId") if isinstance(meta, Mapping) else None
            rows.append(
                {"eventId": e.id, **({"accountId": account} if account else {}), "content": e.payload.get("content")}
            )
    if not rows:
        return None
    text = (
        "<concurrent_user_messages>\n"
        "The messages below came in while an earlier turn was still being answered. Whatever the assistant said after "
        "them belongs to that turn. Answer these messages now.\n"
        f"{_framed(rows)}\n</concurrent_user_messages>"
    )
    return UserMessage([TextPart(text)])


def background_update() -> Message:
    """For a turn that nobody's message started: act on the results that have arrived."""
    return UserMessage(
        [
            TextPart(
                "<background_work_update>\nWork that went on in the background has ended; the results stand above, at "
                "the calls that asked for it. Act on them and answer the user.\n</background_work_update>"
            )
        ]
    )


def plan_state(plan: Mapping[str, Any]) -> Message | None:
    """The live plan, with a reminder to keep it current; None without steps."""
    steps = plan.get("steps") or []
    if not steps:
        return None
    rows = [f"{s.get('id')} · {s.get('label')} · {s.get('status')}".replace("<", "\\u003c") for s in steps]
    return UserMessage(
        [
            TextPart(
                "<plan_state>\n" + "\n".join(rows) + "\nKeep this plan current: call plan with all steps whenever one "
                "changes its status.\n</plan_state>"
            )
        ]
    )


def assemble(
    events: Sequence[LogEvent], *, own: Sequence[str], queued_behind: bool, plan: Mapping[str, Any] | None
) -> list[Message]:
    """Everything a turn sends besides the system prompt: the replay, then what is only said in memory."""
    messages = replay(events)
    if queued_behind:
        note = concurrent_messages(events, own)
        if note is not None:
            messages.append(note)
    elif messages and isinstance(messages[-1], AssistantMessage):
        messages.append(background_update())
    state = plan_state(plan) if plan else None
    if state is not None:
        messages.append(state)
    return messages


def behind(events: Sequence[LogEvent], own: Sequence[str]) -> Sequence[LogEvent]:
    """The events behind the turn's own messages; none without such messages."""
    for at, event in enumerate(events):
        if own and event.id == own[-1]:
            return events[at + 1 :]
    return ()


def spoke_since(events: Sequence[LogEvent], own: Sequence[str], attempt: int) -> bool:
    """Whether an earlier claim of the turn has already said something: an assistant message behind its own messages."""
    return attempt > 1 and any(
        event.payload.get("type") == "message" and event.payload.get("role") == "assistant"
        for event in behind(events, own)
    )
