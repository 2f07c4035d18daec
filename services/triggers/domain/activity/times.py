"""When an event happened (triggers.md §4)."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

from services.triggers.domain.activity.shapes import Activity, field

_LATEST_MS: Final = 8_640_000_000_000_000


def event_time(activity: Activity) -> int | None:
    """Epoch milliseconds: `eventAtMs`, else `time`, else the later of event and observation; None without any."""
    for name in ("eventAtMs", "time"):
        at = _moment(field(activity.event, name))
        if at is not None:
            return at
    times = [_moment(field(activity.event, name)) for name in ("eventTime", "observeTime")]
    return max((at for at in times if at is not None), default=None)


def _moment(value: Any) -> int | None:
    if isinstance(value, dict):
        seconds = _number(value.get("seconds"))
        nanos = _number(value.get("nanos", value.get("nanosSinceSecond"))) or 0.0
        return None if seconds is None else _ms(seconds * 1000 + nanos / 1e6)
    if isinstance(value, str):
        return _from_text(value.strip())
    number = _number(value)
    return None if number is None else _ms(number)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _from_text(value: str) -> int | None:
    try:
        moment = datetime.fromisoformat(value)
        return _ms((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _ms(value: float) -> int | None:
    return int(value) if 0 <= value <= _LATEST_MS else None
