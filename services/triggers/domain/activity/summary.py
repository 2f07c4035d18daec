"""What an event is about, in a line (triggers.md §8)."""

from __future__ import annotations

from typing import Final

from services.triggers.domain.activity.shapes import Activity, record, text

_LONGEST: Final = 500


def summary_of(activity: Activity) -> str:
    """One line of at most 500 characters."""
    line = " ".join(_line(activity).split())
    # Rows cannot hold NUL, and no text can hold half a surrogate pair.
    clean = line.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    return clean if len(clean) <= _LONGEST else f"{clean[: _LONGEST - 1]}…"


def _line(activity: Activity) -> str:
    if activity.blob:
        kind, resource = text(activity.blob, "blobType") or "activity", text(activity.blob, "resource")
        return f"{kind} on {resource}" if resource else kind
    if activity.mention:
        target, source = text(activity.mention, "target") or "unknown target", text(activity.mention, "source")
        return f"Mention of {target} from {source}" if source else f"Mention of {target}"
    name = text(record(record(activity.event, "target"), "metadata"), "name")
    if name:
        return f"{activity.type or 'activity'} on {name}"
    return activity.type or "Seed activity"
