"""How often something may be done: tokens that come back with time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from libs.errors import TooMany

_KEPT = 10_000


class Rate:
    """`per_minute` on the average and at once, each key by itself. `now` gives Unix milliseconds."""

    def __init__(self, per_minute: int, now: Callable[[], int]) -> None:
        self._most, self._now = float(per_minute), now
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, key: str) -> None:
        """Count one. Raises TooMany with the time to wait when there are none left."""
        now = self._now()
        left, at = self._left.get(key, (self._most, now))
        left = min(self._most, left + max(0, now - at) * self._most / 60_000)
        if left < 1:
            raise TooMany("Too many deliveries", retry_after_s=(1 - left) * 60 / self._most)
        self._left[key] = (left - 1, now)
        self._left.move_to_end(key)
        if len(self._left) > _KEPT:
            self._left.popitem(last=False)
