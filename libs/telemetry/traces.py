"""The trace that joins what one request causes in all processes: its id in every log line, and spans when they are on.

Between processes travels a W3C `traceparent`. Spans cost next to nothing until `use` gets a tracer (`otlp.py`). Their
attributes are names, ids, counts and statuses, never what a user or a model wrote, and nothing secret.
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Literal, Protocol

Kind = Literal["server", "client", "internal"]
Value = str | int | float | bool

_trace: ContextVar[str] = ContextVar("seed_trace", default="")
_parent: ContextVar[str] = ContextVar("seed_traceparent", default="")
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Span(Protocol):
    """A piece of work that takes time."""

    def name(self, name: str) -> None:
        """Rename it, once it is known what it is."""
        ...

    def set(self, **attributes: Value) -> None:
        """Say more of it."""
        ...


class Tracer(Protocol):
    """What makes spans of a process."""

    def span(self, name: str, kind: Kind, attributes: dict[str, Value]) -> AbstractContextManager[Span]:
        """A span below the one the current task is in, else below `parent()`, else the first of `trace_id()`."""
        ...

    def traceparent(self) -> str:
        """That of the span the current task is in; empty outside of any."""
        ...


class _Silence:
    """The span of a process without a tracer."""

    def __enter__(self) -> Span:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None

    def name(self, name: str) -> None:
        pass

    def set(self, **attributes: Value) -> None:
        pass


_SILENCE = _Silence()


class _Process:
    """What is in use in this process."""

    tracer: Tracer | None = None


def use(tracer: Tracer | None) -> None:
    """Make spans with `tracer` from now on; None makes none."""
    _Process.tracer = tracer


def span(name: str, kind: Kind = "internal", **attributes: Value) -> AbstractContextManager[Span]:
    """The time inside, under `name`, which is one of few: ids belong into `attributes`.

    An exception that leaves it is told by its type.
    """
    tracer = _Process.tracer
    return _SILENCE if tracer is None else tracer.span(name, kind, attributes)


def trace_id() -> str:
    """The trace id of the current task: 32 hex digits, or empty outside a request."""
    return _trace.get()


def new_trace() -> str:
    """Start a trace in the current task and return its id."""
    value = os.urandom(16).hex()
    bind_trace(value)
    return value


def bind_trace(value: str) -> None:
    """Continue a trace of which only the id is known."""
    _trace.set(value)
    _parent.set("")


def bind_traceparent(value: str) -> None:
    """Continue what came from another process; what is no `traceparent` is ignored."""
    found = _TRACEPARENT.fullmatch(value)
    if found is not None:
        _trace.set(found[1])
        _parent.set(value)


def parent() -> str:
    """The `traceparent` that came from another process, or empty."""
    return _parent.get()


def traceparent() -> str:
    """What another process continues this trace with; empty outside a request."""
    tracer = _Process.tracer
    if tracer is not None and (value := tracer.traceparent()):
        return value
    trace = _trace.get()
    # Not sampled: nobody records a span of this id.
    return f"00-{trace}-{os.urandom(8).hex()}-00" if trace else ""
