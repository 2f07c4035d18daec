"""How far a feed has been handled: what to process of a poll, in which order, and what to remember (triggers.md §4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.triggers.domain.activity.keys import event_key
from services.triggers.domain.activity.shapes import Activity
from services.triggers.domain.activity.times import event_time


@dataclass(frozen=True, slots=True)
class Keyed:
    """An event with its key."""

    key: str
    activity: Activity


@dataclass(frozen=True, slots=True)
class Plan:
    """What a poll leads to: `baseline` keys are seen from now on unprocessed (newest first), then `due` is processed
    in its order, oldest first, each event's key being remembered in the transaction of its firings."""

    baseline: tuple[str, ...]
    due: tuple[Keyed, ...]


def keyed(events: Iterable[Activity]) -> list[Keyed]:
    """The events that have a key, each key once, in the order of the feed."""
    found: dict[str, Keyed] = {}
    for activity in events:
        key = event_key(activity)
        if key is not None:
            found.setdefault(key, Keyed(key, activity))
    return list(found.values())


def first_poll(unseen: Sequence[Keyed], since_ms: int | None) -> Plan:
    """A feed that was never read to an end: events from before `since_ms` (None: all), or without a time, are old.

    What is due is not in the baseline. A first poll that dies is done again, with what is unseen then; until it has
    ended a seen event must not end the fetching, for what is due may be below what is old.
    """
    due = [each for each in unseen if since_ms is not None and (event_time(each.activity) or -1) >= since_ms]
    waiting = {each.key for each in due}
    return Plan(tuple(each.key for each in unseen if each.key not in waiting), tuple(reversed(due)))


def later_poll(unseen: Sequence[Keyed]) -> Plan:
    """A feed that was read before: whatever is not seen is new, whenever it was made."""
    return Plan((), tuple(reversed(unseen)))


def capacity_of(page_size: int, max_pages: int) -> int:
    """How many keys a feed remembers. A poll can fetch `page_size × max_pages`; as many again are kept because events
    that vanish from a feed let older ones move up into what is fetched."""
    return 2 * page_size * max_pages
