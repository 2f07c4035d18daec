"""The `continue_session` verb: what it asks for, and what the successor is told (runtime.md, section 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from libs.protocol import json_bytes
from libs.protocol.text import byte_length
from services.runs.domain.transcript import LogEvent
from services.runs.domain.verbs import DESCRIPTION_BYTES, TITLE_BYTES, VerbError
from services.runs.providers.contract import ToolSpec

NAME = "continue_session"
REASONS = ("topic_change", "phase_change", "refocus", "context_pressure", "user_request", "other")
TRANSFERS = ("carry", "close", "omit")
HANDOFF_BYTES = 32 * 1024
"""Most bytes of what the model writes for its successor."""
PASSAGES_BYTES = 24 * 1024
"""Most bytes of the passages of the log that are shown beside it."""
SOURCES = 50
_LINE_CHARS = 2_000
_RECENT = 8
_MOST_SEQ = 2**53 - 1

PENDING = "continue_session: helpers of this conversation are still at work. Wait for their answers first."
ONCE = "continue_session: once in a reply is enough; another call of this reply does it."

_TEXTS = ("purpose", "currentRequest")
_LISTS = {
    "establishedFacts": "Established",
    "decisions": "Decided",
    "openQuestions": "Open questions",
    "nextActions": "Next",
    "cautions": "Beware",
}
_WHERE = {
    "resource": ("url",),
    "memory": ("path",),
    "session_events": ("fromSeq", "toSeq"),
    "session_event": ("seq",),
}

_text = {"type": "string", "minLength": 1}
_several = {"type": "array", "items": {"type": "string"}}
_number = {"type": "integer", "minimum": 1}

CONTINUE = ToolSpec(
    name=NAME,
    description=(
        "Go on in a new conversation that answers the user's last message in place of this one. Use it when the "
        "subject or the phase of the work changes, when the user asks for a fresh start, or when most of what stands "
        "here only gets in the way; not for an ordinary next question, and not while something you began is undecided. "
        "The new conversation knows nothing but your `handoff`, the `sources` you name and the user's message: write "
        "the handoff for a colleague who has read nothing. `transfer.plan` says what becomes of an unfinished plan: it "
        "moves along (carry), ends here (close) or stays here (omit). This call ends your turn."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "reason": {"type": "string", "enum": list(REASONS)},
            "title": {**_text, "description": "What the new conversation is about."},
            "description": {**_text, "description": "One sentence on how it stands."},
            "handoff": {
                "type": "object",
                "properties": {
                    "purpose": {**_text, "description": "What all of this is for."},
                    "currentRequest": {**_text, "description": "What the user wants now."},
                    **dict.fromkeys(_LISTS, _several),
                },
                "required": list(_TEXTS),
                "additionalProperties": False,
            },
            "sources": {
                "type": "array",
                "maxItems": SOURCES,
                "items": {
                    "type": "object",
                    "properties": {
                        "kind": {"type": "string", "enum": list(_WHERE)},
                        "url": {"type": "string"},
                        "path": {"type": "string"},
                        "sessionId": {"type": "string"},
                        "fromSeq": _number,
                        "toSeq": _number,
                        "seq": _number,
                        "relevance": {**_text, "description": "Why it matters."},
                    },
                    "required": ["kind", "relevance"],
                    "additionalProperties": False,
                },
            },
            "transfer": {
                "type": "object",
                "properties": {"plan": {"type": "string", "enum": list(TRANSFERS)}},
                "additionalProperties": False,
            },
        },
        "required": ["reason", "title", "description", "handoff"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class Source:
    """Something the handoff points to. `first` and `last` are seqs of a session's log (0 for other kinds)."""

    kind: str
    where: str
    relevance: str
    session_id: str = ""
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Continuation:
    """A checked call. `sections` are headings with their text, in order."""

    reason: str
    title: str
    description: str
    sections: Sequence[tuple[str, str]]
    sources: Sequence[Source]
    plan: str


def parse(arguments: Mapping[str, Any]) -> Continuation:
    """The continuation a call asks for. Raises VerbError with a text for the model."""
    reason = arguments.get("reason")
    if reason not in REASONS:
        raise VerbError(f"{NAME} reason must be one of: {', '.join(REASONS)}")
    title = _bounded(arguments.get("title"), "title", TITLE_BYTES)
    description = _bounded(arguments.get("description"), "description", DESCRIPTION_BYTES)
    transfer = arguments.get("transfer", {})
    plan = transfer.get("plan", "carry") if isinstance(transfer, Mapping) else None
    if plan not in TRANSFERS:
        raise VerbError(f"{NAME} transfer.plan must be one of: {', '.join(TRANSFERS)}")
    raw = arguments.get("sources", [])
    if not isinstance(raw, list) or len(raw) > SOURCES:
        raise VerbError(f"{NAME} sources must be a list of at most {SOURCES}")
    return Continuation(reason, title, description, _sections(arguments), [_source(s) for s in raw], plan)


def _bounded(value: Any, name: str, most: int) -> str:
    text = value.replace("\0", "").strip() if isinstance(value, str) else ""
    if not text:
        raise VerbError(f"{NAME} {name} is required")
    if byte_length(text) > most:
        raise VerbError(f"{NAME} {name} is longer than {most} bytes")
    return text


def _sections(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    handoff = arguments.get("handoff")
    if not isinstance(handoff, Mapping):
        raise VerbError(f"{NAME} handoff must be an object with purpose and currentRequest")
    purpose, request = (_bounded(handoff.get(name), f"handoff.{name}", HANDOFF_BYTES) for name in _TEXTS)
    sections = [("Purpose", purpose), ("What is wanted now", request)]
    for name, heading in _LISTS.items():
        value = handoff.get(name)
        # One text in place of a list of one is a slip worth nobody's time.
        items = [value] if isinstance(value, str) else value or []
        if not (isinstance(items, list) and all(isinstance(item, str) for item in items)):
            raise VerbError(f"{NAME} handoff.{name} must be a list of texts")
        lines = [f"- {' '.join(item.split())}" for item in items if item.strip()]
        if lines:
            sections.append((heading, "\n".join(lines)))
    if sum(byte_length(text) for _, text in sections) > HANDOFF_BYTES:
        raise VerbError(f"{NAME} handoff is longer than {HANDOFF_BYTES} bytes")
    return sections


def _source(value: Any) -> Source:
    if not isinstance(value, Mapping) or value.get("kind") not in _WHERE:
        raise VerbError(f"{NAME} sources: kind must be one of: {', '.join(_WHERE)}")
    kind = value["kind"]
    relevance = _bounded(value.get("relevance"), "sources: relevance", DESCRIPTION_BYTES)
    if kind in ("resource", "memory"):
        where = _bounded(value.get(_WHERE[kind][0]), f"sources: {_WHERE[kind][0]}", 2_048)
        if kind == "memory" and not where.startswith("~/memory/"):
            where = "~/memory/" + where.lstrip("/")
        return Source(kind, where, relevance)
    seqs = [value.get(name) for name in _WHERE[kind]]
    if not all(isinstance(seq, int) and not isinstance(seq, bool) and 0 < seq <= _MOST_SEQ for seq in seqs):
        raise VerbError(f"{NAME} sources: {kind} needs {' and '.join(_WHERE[kind])}, counted from 1")
    session_id = value.get("sessionId", "")
    if not isinstance(session_id, str) or "\0" in session_id:
        raise VerbError(f"{NAME} sources: sessionId must be text")
    first, last = int(seqs[0] or 0), int(seqs[-1] or 0)
    if first > last:
        raise VerbError(f"{NAME} sources: fromSeq must not be after toSeq")
    return Source(kind, "", relevance, session_id.strip(), first, last)


def handoff(wanted: Continuation, session_id: str, title: str, log: Sequence[LogEvent], own: Sequence[str]) -> str:
    """What the successor is told, in markdown: the handoff, its sources, and passages of the log as far as they fit.

    `log` is that of session `session_id` from its first event on, `own` are the events of the message that moves on.
    """
    head = json_bytes({"sessionId": session_id, "title": title, "reason": wanted.reason}).decode()
    parts = [
        head,
        "You brought this conversation over from the session named above, which stays as it is. Here is what you left "
        "for yourself. The message after this one is the user's, moved along: answer it here.",
        *(f"## {heading}\n{text}" for heading, text in wanted.sections),
    ]
    if wanted.sources:
        parts.append("## Sources\n" + "\n".join(_line(source, session_id) for source in wanted.sources))
    left = PASSAGES_BYTES
    here = [source for source in wanted.sources if source.first and source.session_id in ("", session_id)]
    cited = [n for source in here for n in range(source.first, min(source.last, len(log)) + 1)]
    shown, left = _passages(log, sorted(set(cited)), left)
    if shown:
        parts.append("## Passages you named\n" + "\n".join(shown))
    before = next((n for n, event in enumerate(log) if event.id in own), len(log))
    said = [n for n in range(1, before + 1) if log[n - 1].payload.get("type") == "message" and n not in cited]
    recent, _ = _passages(log, said[-_RECENT:], left, newest=True)
    if recent:
        parts.append("## What was said last before that message\n" + "\n".join(recent))
    # Inside a tagged frame a "<" could close the frame early.
    body = "\n\n".join(parts).replace("<", "\\u003c")
    return f"<session_continuation>\n{body}\n</session_continuation>"


def _line(source: Source, here: str) -> str:
    if source.kind in ("resource", "memory"):
        return f"- {source.where}: {source.relevance}"
    numbers = str(source.first) if source.first == source.last else f"{source.first} to {source.last}"
    return f"- thread:{source.session_id or here}, events {numbers}: {source.relevance}"


def _passages(
    log: Sequence[LogEvent], seqs: Sequence[int], left: int, *, newest: bool = False
) -> tuple[list[str], int]:
    """Lines of these events within `left` bytes, the newest first in line when there is not room for all."""
    lines: list[str] = []
    for seq in reversed(seqs) if newest else seqs:
        if seq > len(log):
            continue
        line = f"[{seq}] {_told(log[seq - 1].payload)}"
        size = byte_length(line) + 1
        if size > left:
            lines.append("[…] the rest is in that session")
            break
        left -= size
        lines.append(line)
    return (lines[::-1] if newest else lines), left


def _told(payload: Mapping[str, Any]) -> str:
    kind = payload.get("type")
    if kind == "message":
        who, text = str(payload.get("actor") or payload.get("role")), str(payload.get("content", ""))
    elif kind == "tool_call":
        who, text = f"called {payload.get('name', '')}", json_bytes(payload.get("input")).decode()
    elif kind == "tool_result":
        told = payload["error"] if isinstance(payload.get("error"), str) else json_bytes(payload.get("output")).decode()
        who, text = f"result of {payload.get('name', '')}", told
    else:
        who, text = str(kind), str(payload.get("message", ""))
    cut = text if len(text) <= _LINE_CHARS else text[:_LINE_CHARS] + " […]"
    return f"{who}: {cut}"
