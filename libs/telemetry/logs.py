"""Structured logs and the trace id that joins the lines of one request across services."""

from __future__ import annotations

import logging
import os
import sys
from contextvars import ContextVar
from typing import Any

import structlog

_trace: ContextVar[str] = ContextVar("seed_trace", default="")


def trace_id() -> str:
    """The trace id of the current task: 32 hex digits, or empty outside a request."""
    return _trace.get()


def new_trace() -> str:
    """Start a trace in the current task and return its id."""
    value = os.urandom(16).hex()
    _trace.set(value)
    return value


def bind_trace(value: str) -> None:
    """Continue a trace that came from another process."""
    _trace.set(value)


def _add_trace(_: Any, __: str, event: Any) -> Any:
    value = _trace.get()
    if value:
        event["trace"] = value
    return event


def configure(service: str, level: str = "info") -> None:
    """Set up JSON logs on standard error for this process. `level` is debug, info, warning or error."""
    number = {"debug": 10, "info": 20, "warning": 30, "error": 40}.get(level.lower(), 20)
    structlog.configure(
        processors=[
            _add_trace,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format=f"{service} %(name)s %(message)s")


def get_logger(name: str) -> Any:
    """A logger whose lines carry `room: name`."""
    return structlog.get_logger(room=name)
