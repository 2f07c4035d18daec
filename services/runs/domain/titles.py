"""Automatic titles: what is asked of the model, and what is taken from its answer (runtime.md, section 8)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from libs.protocol.text import byte_length
from services.runs.domain.transcript import LogEvent
from services.runs.domain.verbs import DESCRIPTION_BYTES, TITLE_BYTES

ATTEMPTS = 3
"""Titles asked for in one session at the most."""
EVENTS, USER_CHARS, ASSISTANT_CHARS, ALL_CHARS = 12, 1_200, 600, 4_000

SYSTEM = (
    "You name conversations. Answer with exactly two lines and nothing else. First line: a title of at most eight "
    "words, without quotation marks and without a full stop. Second line: one sentence that says what the conversation "
    "is about. Use the language of the conversation."
)


def wanted(title_source: str, attempts: int) -> bool:
    """Whether a session wants a title: nobody has named it, and not all attempts have been taken."""
    return title_source in ("", "system") and attempts < ATTEMPTS


def digest(events: Sequence[LogEvent]) -> str:
    """The beginning of a conversation as the model is shown it; empty when nothing has been said."""
    lines: list[str] = []
    for event in events[:EVENTS]:
        p = event.payload
        if p.get("type") != "message" or p.get("role") not in ("user", "assistant"):
            continue
        cut = USER_CHARS if p["role"] == "user" else ASSISTANT_CHARS
        text = " ".join(str(p.get("content", "")).split())[:cut]
        if text:
            lines.append(f"{p['role']}: {text}")
    return "\n".join(lines)[:ALL_CHARS]


def parse(answer: str) -> tuple[str | None, str | None]:
    """Title and description of an answer: quotes, labels and a final full stop stripped; None for what is unusable."""
    lines = [line for line in (_clean(raw) for raw in answer.splitlines()) if line]
    title = lines[0] if lines else None
    description = lines[1] if len(lines) > 1 else None
    if title is not None:
        title = _clean(title.removesuffix("."))
        if not title or byte_length(title) > TITLE_BYTES:
            title = None
    if description is not None and byte_length(description) > DESCRIPTION_BYTES:
        description = None
    return title, description


_LABEL = re.compile(r"(title|description|line\s*[12])(\**\s*:|\s+[–—-]\s)", re.IGNORECASE)


def _clean(line: str) -> str:
    """Without markdown, label and quotes, in whatever order a model wraps them around each other."""
    line = line.replace("\0", "")
    while True:
        inner = line.strip().lstrip("#->*").rstrip("*").strip().strip("\"'“”„«»`").strip()
        inner = inner[label.end() :] if (label := _LABEL.match(inner)) else inner
        if inner == line:
            return line
        line = inner
