"""Logs, metrics and traces of a process.

Logs are JSON lines with the service's name and the current trace id. Message text, tool output, envelopes and secrets
are never logged: callers log ids, counts, statuses and durations.
"""

from libs.telemetry.logs import bind_trace, configure, get_logger, new_trace, trace_id
from libs.telemetry.metrics import RPC_SECONDS, start_metrics

__all__ = [
    "RPC_SECONDS",
    "bind_trace",
    "configure",
    "get_logger",
    "new_trace",
    "start_metrics",
    "trace_id",
]
