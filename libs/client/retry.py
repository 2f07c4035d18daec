"""When the same signed bytes may be sent again, and how long to wait before."""

from __future__ import annotations

import random
from collections.abc import Mapping

from .errors import ApiError, ClientError

_FIRST_S = 0.05
_LIMIT_S = 2.0
_AWAY = frozenset({502, 503, 504})


class Pauses:
    """Growing pauses with jitter, in seconds, so that many clients do not come back together."""

    def __init__(self, first_s: float = _FIRST_S, limit_s: float = _LIMIT_S) -> None:
        self._next = first_s
        self._limit = limit_s

    def next(self) -> float:
        """The pause before the next try."""
        pause = self._next
        self._next = min(self._limit, pause * 2)
        return pause * random.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the answer asks to wait (its whole-seconds form), or None."""
    value = headers.get("Retry-After", "")
    return float(value) if value.isdigit() else None


def may_send_again(failure: ClientError, headers: Mapping[str, str], *, mutating: bool, sent: int) -> bool:
    """Is the refusal a matter of the moment, and is sending the same bytes again safe?

    503 comes before any effect, and repeated bytes cannot act twice. 409 of bytes that were sent before means that the
    first is in flight, when the server says so by Retry-After. 502 of a mutation is the answer of a turn.
    """
    if not isinstance(failure, ApiError):
        return False
    asks_to_wait = retry_after(headers) is not None
    if failure.status == 409:
        return mutating and sent > 1 and asks_to_wait
    if failure.status == 503:
        return asks_to_wait or not mutating
    return failure.status in _AWAY and not mutating and failure.code is None and asks_to_wait
