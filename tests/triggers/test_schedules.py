"""Schedules against a reference that looks at every minute, and the documented examples."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.errors import Invalid
from services.triggers.domain import schedules

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ZONES = (
    "UTC", "America/New_York", "Europe/Berlin", "Pacific/Kiritimati", "Pacific/Honolulu", "Australia/Lord_Howe",
    "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia",
)  # fmt: skip


def at(text: str) -> int:
    """Unix milliseconds of a time in UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def weekly(days: list[int], time: str, zone: str) -> dict[str, object]:
    return {"kind": "weekly", "daysOfWeek": days, "timeOfDay": time, "timezone": zone}


def naive(instant: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(instant / 1000, zone).replace(tzinfo=None)


def occurrence(day: datetime, zone: ZoneInfo) -> int:
    """The instant of a local time, found by walking over the minutes around it."""
    instant = round((day - timedelta(hours=15)).replace(tzinfo=UTC).timestamp()) * 1000
    assert naive(instant, zone) < day
    while naive(instant + HOUR, zone) < day:
        instant += HOUR
    while naive(instant + MINUTE, zone) < day:
        instant += MINUTE
    if naive(instant + MINUTE, zone) == day:
        return instant + MINUTE
    # The clock leaves it out: as far after the last minute before as the clock would have gone.
    return instant + round((day - naive(instant, zone)).total_seconds()) * 1000


def reference(schedule: dict, created: int, last: int | None, now: int) -> int | None:
    """The rule of triggers.md read literally."""
    zone, after = ZoneInfo(schedule["timezone"]), created if last is None else last
    hour, minute = map(int, schedule["timeOfDay"].split(":"))
    today = naive(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    found = []
    for back in range(8):
        day = today - timedelta(days=back)
        if (day.weekday() + 1) % 7 in schedule["daysOfWeek"]:
            instant = occurrence(day + timedelta(hours=hour, minutes=minute), zone)
            if instant <= now:
                found.append(instant)
    latest = max(found, default=None)
    return latest if latest is not None and latest > after and latest >= created else None


times = st.integers(at("2022-01-01"), at("2028-01-01"))
some_weekly = st.builds(
    weekly,
    st.lists(st.integers(0, 6), min_size=1, max_size=7, unique=True),
    st.builds("{:02d}:{:02d}".format, st.integers(0, 23), st.sampled_from((0, 15, 30, 59))),
    st.sampled_from(ZONES),
)


@given(some_weekly, times, st.one_of(st.none(), st.integers(0, 20 * DAY)), st.integers(0, 30 * DAY))
@settings(max_examples=150, deadline=None)
def test_weekly_is_due_as_the_reference_says(schedule: dict, created: int, last: int | None, later: int) -> None:
    fired, now = None if last is None else created + last, created + later
    assert schedules.due(schedule, created, fired, now) == reference(schedule, created, fired, now)


@given(some_weekly, times, st.one_of(st.none(), st.integers(0, 20 * DAY)))
@settings(max_examples=150, deadline=None)
def test_the_next_time_is_the_first_at_which_it_is_due(schedule: dict, created: int, last: int | None) -> None:
    fired = None if last is None else created + last
    due = schedules.next_due(schedule, created, fired)
    assert due is not None
    assert schedules.due(schedule, created, fired, due) == due
    assert schedules.due(schedule, created, fired, due - 1) is None
    assert due - (fired or created) <= 9 * DAY


@given(st.sampled_from(("America/New_York", "Europe/Berlin", "Australia/Lord_Howe")), st.integers(0, 59), times)
@settings(max_examples=60, deadline=None)
def test_every_day_fires_once_through_the_changes_of_the_clock(zone: str, minute: int, created: int) -> None:
    schedule = weekly([0, 1, 2, 3, 4, 5, 6], f"02:{minute:02d}", zone)
    last, days = None, []
    for _ in range(400):
        due = schedules.next_due(schedule, created, last)
        assert due is not None
        last = schedules.fired_at(due, due)
        days.append(naive(due, ZoneInfo(zone)).date())
    assert days == [days[0] + timedelta(days=n) for n in range(400)]


@given(
    st.integers(1, 500), st.sampled_from(("minutes", "hours")), times, st.lists(st.integers(0, 40 * DAY), max_size=12)
)
@settings(deadline=None)
def test_intervals_drift_and_misses_collapse(every: int, unit: str, created: int, looks: list[int]) -> None:
    schedule = {"kind": "interval", "every": every, "unit": unit}
    step = every * (MINUTE if unit == "minutes" else HOUR)
    last: int | None = None
    for now in sorted(created + look for look in looks):
        due = schedules.due(schedule, created, last, now)
        before = created if last is None else last
        assert due == (before + step if now - before >= step else None)
        assert (schedules.next_due(schedule, created, last) <= now) == (due is not None)
        if due is not None:
            last = schedules.fired_at(due, now)
            assert last == now
            assert schedules.due(schedule, created, last, now) is None


def test_interval_of_the_documents() -> None:
    schedule = {"kind": "interval", "every": 15, "unit": "minutes"}
    created, now = at("2026-05-01T00:00"), at("2026-05-01T00:47")
    assert schedules.due(schedule, created, None, now) == at("2026-05-01T00:15")
    assert schedules.next_due(schedule, created, schedules.fired_at(at("2026-05-01T00:15"), now)) == at(
        "2026-05-01T01:02"
    )


@pytest.mark.parametrize(
    ("time", "zone", "now", "due"),
    [
        ("02:30", "America/New_York", "2026-03-08T12:00", "2026-03-08T07:30"),
        ("01:30", "America/New_York", "2026-11-01T12:00", "2026-11-01T05:30"),
        ("00:00", "Pacific/Kiritimati", "2026-06-10T10:30", "2026-06-10T10:00"),
        ("23:00", "Pacific/Honolulu", "2026-06-10T09:30", "2026-06-10T09:00"),
    ],
)
def test_zones_of_the_documents(time: str, zone: str, now: str, due: str) -> None:
    schedule = weekly([0, 1, 2, 3, 4, 5, 6], time, zone)
    assert schedules.due(schedule, at("2026-01-01"), None, at(now)) == at(due)


def test_once_is_due_from_its_time_on() -> None:
    schedule = {"kind": "once", "runAt": 1_000}
    assert schedules.due(schedule, 5_000, None, 999) is None
    assert schedules.due(schedule, 5_000, None, 6_000) == 1_000
    assert schedules.next_due(schedule, 5_000, None) == 1_000


def test_what_lies_beyond_the_calendar_never_comes() -> None:
    assert schedules.next_due({"kind": "once", "runAt": 2**53 - 1}, 0, None) is None
    assert schedules.next_due({"kind": "interval", "every": 2**53 - 1, "unit": "hours"}, 0, None) is None
    assert schedules.iso(2**53 - 1) == str(2**53 - 1)


def test_what_is_told_of_a_firing() -> None:
    day, noon = weekly([3], "09:05", "Europe/Berlin"), at("2026-05-01T12:00")
    once = {"kind": "once", "runAt": noon, "timezone": "UTC"}
    every = {"kind": "interval", "every": 1, "unit": "hours"}
    assert schedules.title(day, noon) == "Scheduled weekly run at 09:05 Europe/Berlin"
    assert schedules.title(once, noon) == "One-time schedule at 2026-05-01T12:00:00.000Z"
    assert schedules.title(every, noon + 7) == "Scheduled interval at 2026-05-01T12:00:00.007Z"
    assert schedules.summary(once, noon) == "Scheduled once at 2026-05-01T12:00:00.000Z"
    assert schedules.event(once, noon, noon + 1) == {
        "type": "schedule", "scheduleKind": "once", "scheduledAt": noon, "firedAt": noon + 1, "timezone": "UTC",
    }  # fmt: skip
    assert "timezone" not in schedules.event(every, noon, noon)
    assert schedules.firing_key("t", noon) == f"schedule:t:{noon}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "Trigger schedule is required"),
        ([], "Trigger schedule is required"),
        ({}, "Schedule kind is unsupported"),
        ({"kind": ["weekly"]}, "Schedule kind is unsupported"),
        *(
            ({"kind": "interval", "every": every, "unit": "hours"}, "Schedule interval must be a positive integer")
            for every in (0, -1, 1.5, "1", True, None)
        ),
        ({"kind": "interval", "every": 1, "unit": "days"}, "Schedule interval unit is unsupported"),
        ({"kind": "interval", "every": 1, "unit": ["hours"]}, "Schedule interval unit is unsupported"),
        *(
            ({"kind": "weekly", "daysOfWeek": days}, "Schedule days of week are required")
            for days in (None, [], "1", {})
        ),
        *(
            ({"kind": "weekly", "daysOfWeek": [1, day]}, "Schedule day of week is invalid")
            for day in (7, -1, 1.5, "1", True, None, [])
        ),
        (weekly([1], "", "UTC"), "Schedule time of day is required"),
        (weekly([1], "09:000", "UTC"), "Schedule time of day is too large"),
        *(
            (weekly([1], time, "UTC"), "Schedule time of day is invalid")
            for time in ("24:00", "09:60", "9:00", "aa:bb")
        ),
        (weekly([1], "09:00", ""), "Schedule timezone is required"),
        (weekly([1], "09:00", "x" * 257), "Schedule timezone is too large"),
        *(
            (weekly([1], "09:00", zone), "Schedule timezone is invalid")
            for zone in ("Mars/X", "../UTC", "America", "/")
        ),
        *(
            ({"kind": "once", "runAt": run_at}, "Schedule run time is invalid")
            for run_at in (0, -5, 1.5, "1", None, True, 2**53)
        ),
        ({"kind": "once", "runAt": 1, "timezone": None}, "Schedule timezone is required"),
    ],
)
def test_rules(value: object, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        schedules.normalized(value)
    assert refused.value.message == text


def test_what_is_stored() -> None:
    sent = {"kind": "weekly", "daysOfWeek": [5, 1, 5], "timeOfDay": " 09:00 ", "timezone": " europe/berlin ", "x": 1}
    assert schedules.normalized(sent) == weekly([5, 1], "09:00", "Europe/Berlin")
    assert schedules.normalized({"kind": "interval", "every": 5.0, "unit": "minutes"}) == {
        "kind": "interval", "every": 5, "unit": "minutes",
    }  # fmt: skip
    assert schedules.normalized({"kind": "once", "runAt": 5, "timezone": "UTC"}) == {
        "kind": "once", "runAt": 5, "timezone": "UTC",
    }  # fmt: skip
