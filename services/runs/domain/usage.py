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
