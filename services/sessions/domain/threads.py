"""Looking for a text in an account's own sessions (runtime.md, section 6)."""

from __future__ import annotations

import re

import msgspec

from libs.protocol.limits import THREAD_SNIPPET_CHARS

_ASCII = re.compile(r"[\x20-\x7e]+")


def needle(query: str) -> str:
    """What the JSON of every message that holds `query` holds too, in lower case: its longest run of plain characters.

    A database may not know the case of others.
    """
    written = msgspec.json.encode(query.lower()).decode()[1:-1]
    return max(_ASCII.findall(written), key=len, default="")


def snippet(payload: bytes, query: str) -> str:
    """The first occurrence of `query` (lower case) in a message, with the text around it; empty without one."""
    event = msgspec.json.decode(payload)
    if event.get("type") != "message" or not isinstance(event.get("content"), str):
        return ""
    text: str = event["content"]
    found = re.search(re.escape(query), text, re.IGNORECASE)
    if found is None:
        return ""
    first, last = max(0, found.start() - THREAD_SNIPPET_CHARS), found.end() + THREAD_SNIPPET_CHARS
    around = " ".join(text[first:last].split())
    return f"{'…' if first else ''}{around}{'…' if last < len(text) else ''}"


def names(query: str, title: str | None, description: str | None) -> bool:
    """Whether a title or a description holds `query` (lower case)."""
    return query in f"{title or ''}\n{description or ''}".lower()
