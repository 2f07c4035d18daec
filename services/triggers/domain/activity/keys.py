"""What an event is called, so that nothing is handled twice (triggers.md §4)."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from services.triggers.domain.activity.shapes import Activity, field, record, text

_MENTION: Final = re.compile(r"mention-([^-]+)-")
# Keys are indexed, and an index holds no row of kilobytes. Part of a key may be an address that anyone made up.
_LONGEST: Final = 512


def event_key(activity: Activity) -> str | None:
    """The key of an event; None when it has none and must be skipped."""
    key = _named(activity) or _raw_blob(activity) or _raw_mention(activity)
    return _storable(key) if key else None


def firing_key(activity: Activity) -> str | None:
    """The key under which a trigger fires once: a comment and the citation it causes share it."""
    key = event_key(activity)
    found = _MENTION.match(key) if key else None
    return f"blob-{found[1]}" if found else key


def _named(activity: Activity) -> str:
    feed_event_id = text(activity.event, "feedEventId")
    if feed_event_id:
        return feed_event_id
    type_, id_ = activity.type, text(activity.event, "id")
    return f"{type_}-{id_}" if type_ and id_ else ""


def _raw_blob(activity: Activity) -> str:
    cid = text(activity.blob, "cid")
    if cid:
        return f"blob-{cid}"
    blob_id = field(activity.blob, "blobId")
    if isinstance(blob_id, int) and not isinstance(blob_id, bool):
        return f"blob-id-{blob_id}"
    return f"blob-id-{blob_id.strip()}" if text(activity.blob, "blobId") and isinstance(blob_id, str) else ""


def _raw_mention(activity: Activity) -> str:
    cid = text(record(activity.mention, "sourceBlob"), "cid")
    target = text(activity.mention, "target")
    return f"mention-{cid}-{text(activity.mention, 'mentionType')}-{target}" if cid and target else ""


def _storable(key: str) -> str:
    clean = key.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if len(clean) <= _LONGEST:
        return clean
    digest = hashlib.sha256(clean.encode()).hexdigest()
    return f"{clean[: _LONGEST - 65]}~{digest}"
