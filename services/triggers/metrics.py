"""Prometheus metrics of triggers."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

POLLS = Counter("seed_triggers_polls", "Polls of activity feeds, by whether they succeeded.", ["outcome"])
POLL_SECONDS = Histogram(
    "seed_triggers_poll_seconds",
    "A poll of one activity feed, the evaluation of its events included.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60),
)
EVENTS = Counter("seed_triggers_events", "Events of activity feeds that were evaluated.")
ACTIVITY_FIRINGS = Counter("seed_triggers_activity_firings", "Firings that activity feeds have caused.")
FEEDS = Gauge("seed_triggers_feeds", "Activity feeds that are polled, by all monitors together.")
FEEDS_TROUBLED = Gauge("seed_triggers_feeds_troubled", "Those of them whose last poll failed.")
