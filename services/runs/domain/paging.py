"""Page tokens: opaque, and good only for the filter they were made with (google.aip.dev/158)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import msgspec

from libs.errors import Invalid

PAGE = 100
PAGE_MOST = 1000


class _Token(msgspec.Struct, array_like=True):
    created_at: int
    id: str
    made_for: str


def page_size(asked: int) -> int:
    """Rows of a page. Raises Invalid for a negative number."""
    if asked < 0:
        raise Invalid("Page size must not be negative")
    return min(asked, PAGE_MOST) or PAGE


def token_after(created_at: int, row_id: str, filter_by: Sequence[str]) -> str:
    """The token of the page that follows this row (`created_at` in Unix ms, its id)."""
    raw = msgspec.json.encode(_Token(created_at, row_id, _digest(filter_by)))
    return base64.urlsafe_b64encode(raw).decode()


def read_token(token: str, filter_by: Sequence[str]) -> tuple[int, str] | None:
    """The row that a page follows as (created_at, id); None for the first page.

    Raises Invalid for what token_after did not make, and for a token of another filter.
    """
    if not token:
        return None
    try:
        read = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Token)
    except (ValueError, msgspec.MsgspecError):
        raise Invalid("Page token is not valid") from None
    if read.made_for != _digest(filter_by):
        raise Invalid("Page token belongs to another filter")
    if not 0 <= read.created_at < 1 << 63 or "\0" in read.id:
        raise Invalid("Page token is not valid")
    return read.created_at, read.id


def _digest(filter_by: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(filter_by).encode()).hexdigest()[:16]
