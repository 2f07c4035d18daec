"""Prometheus metrics of the edge."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

ACTIONS = Counter("seed_edge_actions", "Actions answered, by name and HTTP status.", ["action", "status"])
ACTION_SECONDS = Histogram(
    "seed_edge_action_seconds",
    "From the whole body to the answer, turns that are waited for included.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600),
)
BODY_BYTES = Gauge("seed_edge_body_bytes", "Request bodies held now.")
SOCKETS = Gauge("seed_edge_sockets", "WebSockets open now.")
FRAMES_DROPPED = Counter("seed_edge_frames_dropped", "Frames left out for slow WebSockets.", ["kind"])
SOCKETS_CLOSED = Counter("seed_edge_sockets_closed", "WebSockets the edge closed, by cause.", ["cause"])
FILLS = Counter("seed_edge_fills", "Times a stream fetched what it had missed.")
