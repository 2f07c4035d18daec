"""Prometheus metrics shared by all services."""

from __future__ import annotations

from prometheus_client import Histogram, start_http_server

RPC_SECONDS = Histogram(
    "seed_rpc_seconds",
    "Duration of internal calls handled, by method and result.",
    ["method", "result"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)


def start_metrics(host: str, port: int) -> None:
    """Serve `/metrics` on host:port; port 0 does nothing."""
    if port:
        start_http_server(port, addr=host)
