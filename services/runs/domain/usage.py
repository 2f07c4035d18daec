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
