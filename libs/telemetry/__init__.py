"""Logs, metrics and traces of a process.

Logs are JSON lines with the service's name and the current trace id. Message text, tool output, envelopes and secrets
are never logged: callers log ids, counts, statuses and durations.
"""

from libs.telemetry.logs import configure, get_logger
from libs.telemetry.metrics import RPC_SECONDS, start_metrics
from libs.telemetry.traces import bind_trace, bind_traceparent, new_trace, span, trace_id, traceparent

__all__ = [
    "RPC_SECONDS",
    "bind_trace",
    "bind_traceparent",
    "configure",
    "get_logger",
    "new_trace",
    "span",
    "start_metrics",
    "trace_id",
    "traceparent",
]
