"""The cursor of ListSessions (actions.md, limits.md)."""

from __future__ import annotations

from dataclasses import dataclass

from libs.errors import Invalid
from libs.protocol.text import required_text

_LATEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """Sessions strictly after (updated_before, id_before) in descending order; milliseconds and an id."""

    updated_before: int = _LATEST
    id_before: str = "\U0010ffff"


def cursor(value: object) -> Cursor:
    """A cursor as sent. Raises Invalid with the documented texts."""
    if not isinstance(value, dict):
        raise Invalid("Session cursor must be an object")
    updated = value.get("updatedBefore")
    if isinstance(updated, bool) or not isinstance(updated, int) or updated <= 0:
        raise Invalid("Cursor updatedBefore must be a positive integer")
    before = required_text(value.get("idBefore"), "Cursor idBefore", allow_nul=True)
    # No stored id holds NUL, so nothing lies between the two texts.
    head, nul, _ = before.partition("\0")
    return Cursor(min(updated, _LATEST), head + "\x01" if nul else before)
