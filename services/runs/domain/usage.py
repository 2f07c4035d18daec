"""Tokens on the wire."""

from __future__ import annotations

import msgspec

from services.runs.providers.contract import Usage


def usage_json(usage: Usage) -> bytes:
    """JSON of the public AgentRunUsage."""
    return msgspec.json.encode(
        {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
            "total": usage.total,
        }
    )


def usage_of(body: bytes | None) -> Usage:
    """The usage that `usage_json` or `RunUsageInfo` JSON tells; none for None."""
    told = msgspec.json.decode(body) if body else {}
    return Usage(
        input=told.get("input", 0),
        output=told.get("output", 0),
        cache_read=told.get("cacheRead", 0),
        cache_write=told.get("cacheWrite", 0),
    )


_COUNTS = ("input", "output", "cacheRead", "cacheWrite", "total")


def rolled_up(before: bytes | None, child: bytes | None, grandchildren: bytes | None) -> bytes:
    """A parent's `usage.children` after one more child has become terminal: JSON of the counts and `runs`."""
    total = msgspec.json.decode(before) if before else {}
    own = msgspec.json.decode(child) if child else {}
    below = msgspec.json.decode(grandchildren) if grandchildren else {}
    added = {name: total.get(name, 0) + own.get(name, 0) + below.get(name, 0) for name in _COUNTS}
    return msgspec.json.encode({**added, "runs": total.get("runs", 0) + 1 + below.get("runs", 0)})


def with_children(own: bytes | None, children: bytes | None) -> bytes | None:
    """JSON of the public RunUsageInfo; None before the first reply of the run and of its children."""
    if children is None:
        return own
    counts = msgspec.json.decode(own) if own else dict.fromkeys(_COUNTS, 0)
    return msgspec.json.encode({**counts, "children": msgspec.json.decode(children)})
