"""Schedules: their rules, when they are due, and what is told of them (triggers.md, section 5).

A schedule is the public AgentScheduleTrigger as a plain dict. Times are Unix milliseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from libs.errors import Invalid
from libs.protocol.limits import TIME_OF_DAY
from libs.protocol.text import required_text
from libs.wire import MAX_SAFE_INTEGER

Schedule = Mapping[str, Any]

INTERVAL, WEEKLY, ONCE = "interval", "weekly", "once"
_UNIT_MS = {"minutes": 60_000, "hours": 3_600_000}
_LOOK_BACK_DAYS = 7
# A week from any day has every weekday, and a day on either side covers every offset of a zone.
_LOOK_AHEAD_DAYS = 9
_LATEST = 253_370_764_800_000
"""Year 9999: where the calendar of this language ends."""


def normalized(value: object) -> dict[str, Any]:
    """The schedule as it is stored. Raises Invalid with the documented texts."""
    if not isinstance(value, dict):
        raise Invalid("Trigger schedule is required")
    match value.get("kind"):
        case "interval":
            every = _whole(value.get("every"))
            if every is None or every <= 0:
                raise Invalid("Schedule interval must be a positive integer")
            unit = value.get("unit")
            if not isinstance(unit, str) or unit not in _UNIT_MS:
                raise Invalid("Schedule interval unit is unsupported")
            return {"kind": INTERVAL, "every": every, "unit": unit}
        case "weekly":
            return _weekly(value)
        case "once":
            run_at = _whole(value.get("runAt"))
            if run_at is None or not 0 < run_at <= MAX_SAFE_INTEGER:
                raise Invalid("Schedule run time is invalid")
            once: dict[str, Any] = {"kind": ONCE, "runAt": run_at}
            if "timezone" in value:
                once["timezone"] = _zone_name(value["timezone"])
            return once
    raise Invalid("Schedule kind is unsupported")


def due(schedule: Schedule, created_at: int, last_fired_at: int | None, now: int) -> int | None:
    """The time it is due for at `now`; None when it is not due. Misses collapse into one.

    A `once` is due from its time on: that it fires once is for who keeps the record of firings.
    """
    after = created_at if last_fired_at is None else last_fired_at
    match schedule["kind"]:
        case "interval":
            at = after + every_ms(schedule)
            return at if now >= at else None
        case "weekly":
            past = [at for at in _occurrences(schedule, now, -_LOOK_BACK_DAYS, 0) if at <= now]
            latest = max(past, default=None)
            return latest if latest is not None and latest > after and latest >= created_at else None
    return schedule["runAt"] if now >= schedule["runAt"] else None


def next_due(schedule: Schedule, created_at: int, last_fired_at: int | None) -> int | None:
    """The first time at which `due` says so; None when that is beyond the calendar."""
    after = created_at if last_fired_at is None else last_fired_at
    match schedule["kind"]:
        case "interval":
            at = after + every_ms(schedule)
        case "weekly":
            start = max(after, created_at)
            coming = [
                at for at in _occurrences(schedule, start, -1, _LOOK_AHEAD_DAYS) if at > after and at >= created_at
            ]
            at = min(coming, default=_LATEST)
        case _:
            at = schedule["runAt"]
    return at if at < _LATEST else None


def fired_at(scheduled_at: int, now: int) -> int:
    """What the trigger's lastFiredAt becomes."""
    return max(now, scheduled_at)


def every_ms(schedule: Schedule) -> int:
    """Length of an interval."""
    return schedule["every"] * _UNIT_MS[schedule["unit"]]


def firing_key(trigger_id: str, scheduled_at: int) -> str:
    """What one firing of a schedule is known by."""
    return f"schedule:{trigger_id}:{scheduled_at}"


def event(schedule: Schedule, scheduled_at: int, now: int) -> dict[str, Any]:
    """The event that a due schedule is."""
    told: dict[str, Any] = {
        "type": "schedule",
        "scheduleKind": schedule["kind"],
        "scheduledAt": scheduled_at,
        "firedAt": now,
    }
    if "timezone" in schedule:
        told["timezone"] = schedule["timezone"]
    return told


def summary(schedule: Schedule, scheduled_at: int) -> str:
    """One line about a firing."""
    return f"Scheduled {schedule['kind']} at {iso(scheduled_at)}"


def title(schedule: Schedule, scheduled_at: int) -> str:
    """What the title of its session ends with."""
    match schedule["kind"]:
        case "weekly":
            return f"Scheduled weekly run at {schedule['timeOfDay']} {schedule['timezone']}"
        case "once":
            return f"One-time schedule at {iso(scheduled_at)}"
    return f"Scheduled interval at {iso(scheduled_at)}"


def iso(at: int) -> str:
    """ISO 8601 in UTC with milliseconds."""
    if not 0 <= at < _LATEST:
        return str(at)
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).strftime("%Y-%m-%dT%H:%M:%S.") + (
        f"{at % 1000:03d}Z"
    )


def _weekly(value: Mapping[str, Any]) -> dict[str, Any]:
    days = value.get("daysOfWeek")
    if not isinstance(days, list) or not days:
        raise Invalid("Schedule days of week are required")
    kept: list[int] = []
    for day in days:
        number = _whole(day)
        if number is None or not 0 <= number <= 6:
            raise Invalid("Schedule day of week is invalid")
        if number not in kept:
            kept.append(number)
    at = required_text(value.get("timeOfDay"), "Schedule time of day", 5)
    if not TIME_OF_DAY.fullmatch(at):
        raise Invalid("Schedule time of day is invalid")
    return {"kind": WEEKLY, "daysOfWeek": kept, "timeOfDay": at, "timezone": _zone_name(value.get("timezone"))}


def _zone_name(value: object) -> str:
    name = required_text(value, "Schedule timezone")
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    # Clients take names in any case, files do not.
    known = _zones().get(name.lower())
    if known is None:
        raise Invalid("Schedule timezone is invalid")
    return known


@functools.cache
def _zones() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


def _occurrences(schedule: Schedule, around: int, first: int, last: int) -> Iterator[int]:
    """Times it names, on the local dates from `first` to `last` days after that of `around`."""
    zone = ZoneInfo(schedule["timezone"])
    hour, minute = map(int, schedule["timeOfDay"].split(":"))
    today = datetime.fromtimestamp(min(around, _LATEST) / 1000, zone).date()
    for days in range(first, last + 1):
        day = today + timedelta(days=days)
        if day.isoweekday() % 7 in schedule["daysOfWeek"]:
            yield _instant(day, time(hour, minute), zone)


def _instant(day: date, at: time, zone: ZoneInfo) -> int:
    # fold=0: the first of two, and a time that a gap leaves out moves by the gap.
    local = datetime.combine(day, at, zone)
    return round(local.timestamp()) * 1000


def _whole(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
