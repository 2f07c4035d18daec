"""Structured logs; the trace id joins the lines of one request across services."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import structlog

from libs.telemetry.faults import describe, exception_of
from libs.telemetry.traces import trace_id


def _add_trace(_: Any, __: str, event: Any) -> Any:
    value = trace_id()
    if value:
        event["trace"] = value
    return event


def _add_fault(_: Any, __: str, event: Any) -> Any:
    error = exception_of(event.pop("exc_info", None))
    if error is not None:
        event["fault"] = describe(error)
    return event


class _ForeignLines(logging.Formatter):
    """Lines of libraries in the form of ours: the template's first line, without the values that belong into it."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        text = record.msg.partition("\n")[0] if isinstance(record.msg, str) else type(record.msg).__qualname__
        if record.name == "py.warnings":
            text = ": ".join(text.split(": ")[:2])  # place and category, without what it says
        event: dict[str, Any] = {"service": self._service, "room": record.name, "event": text}
        error = exception_of(record.exc_info)
        if error is not None:
            event["fault"] = describe(error)
        event["level"] = record.levelname.lower()
        event["timestamp"] = datetime.fromtimestamp(record.created, UTC).isoformat()
        return json.dumps(_add_trace(None, "", event))


def configure(service: str, level: str = "info") -> None:
    """Set up JSON logs on standard error for this process. `level` is debug, info, warning or error.

    Of an exception (`exc_info=`) the type and the places are logged, never the text: it may hold what users wrote.
    """
    number = {"debug": 10, "info": 20, "warning": 30, "error": 40}.get(level.lower(), 20)

    def add_service(_: Any, __: str, event: Any) -> Any:
        event["service"] = service
        return event

    structlog.configure(
        processors=[
            add_service,
            _add_trace,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _add_fault,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_ForeignLines(service))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a line that cannot be written would be printed with its values


def get_logger(name: str) -> Any:
    """A logger whose lines carry `room: name`."""
    return structlog.get_logger(room=name)
