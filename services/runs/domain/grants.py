"""What an agent may call, and what it has looked at closely enough to be offered by itself (runtime.md, section 5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from libs.protocol.tools import CALLABLES, callable_name, granted_callables
from services.runs.domain.transcript import LogEvent

_PUBLISHING = frozenset(("publish", "write", "memory_publish_document", "ipfs_write", "attachment_to_ipfs"))
"""The grant, and the names that it had before."""


def callables(tools: Sequence[str] | None, asked: Sequence[str] | None = None) -> frozenset[str]:
    """The callables of a turn: those `definition.tools` grants, and of these what a delegation asked for."""
    granted = granted_callables(tools)
    return granted if asked is None else granted & {callable_name(name) for name in asked}


def publishes(tools: Sequence[str] | None, asked: Sequence[str] | None = None) -> bool:
    """Whether publishing is granted; a delegation that narrows has to ask for it."""
    lists = [names for names in (tools, asked) if names is not None]
    return all(not _PUBLISHING.isdisjoint(names) for names in lists)


def looked_at(verb: str, arguments: Any) -> str:
    """The callable that a call of `read` or `call` names; empty without one."""
    if not isinstance(arguments, Mapping):
        return ""
    if verb == "call":
        name = arguments.get("tool")
        return callable_name(name) if isinstance(name, str) else ""
    address = arguments.get("address")
    if verb != "read" or not isinstance(address, str):
        return ""
    _, found, name = address.strip().partition("~/tools/")
    return callable_name(name.rstrip("/")) if found else ""


def promoted(events: Iterable[LogEvent], allowed: Collection[str]) -> list[str]:
    """The callables that the agent itself has looked at anywhere in its log, in order, of those `allowed`."""
    if not CALLABLES:
        return []
    found: dict[str, None] = {}
    for event in events:
        payload = event.payload
        if payload.get("type") == "tool_call" and payload.get("actor", "agent") == "agent":
            name = looked_at(str(payload.get("name")), payload.get("input"))
            if name in allowed:
                found[name] = None
    return list(found)
