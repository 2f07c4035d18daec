"""What is told of the trigger that started a session (triggers.md, section 8)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.sessions.domain.fields import Fields
from services.sessions.domain.turns import FAILED


def run_id(firing_id: str) -> str:
    """The run of the turn that a firing starts."""
    return f"firing-{firing_id}"


def context(stored: bytes, turn: Fields | Mapping[str, object] | None) -> bytes:
    """The context as it was at the firing, with what has become of the turn since. A failed turn is a failed firing."""
    if turn is None or turn["status"] != FAILED:
        return stored
    told = msgspec.json.decode(stored)
    return msgspec.json.encode({**told, "status": "error", "error": turn["error_message"]})
