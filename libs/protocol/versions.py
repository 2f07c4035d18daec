"""Protocol versions (envelope.md, section 5)."""

from typing import Final

PROTOCOL_VERSION: Final = 3
"""Version this server speaks; newer clients are served too."""

MIN_CLIENT_PROTOCOL: Final = 1
"""Oldest client version served; below it HTTP 426."""

COMPOUND_TRIGGER_PROTOCOL: Final = 3
"""First version whose clients know the trigger sources in `COMPOUND_TRIGGER_SOURCES` and `mergedInto`."""

COMPOUND_TRIGGER_SOURCES: Final = frozenset({"activity", "comment-reply", "document-author-comment"})
"""Trigger source types that an older client must not be shown or let change."""
