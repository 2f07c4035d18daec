"""What log lines hold, and above all what they do not."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
import structlog

from libs import telemetry
from libs.errors import Invalid
from libs.telemetry.faults import describe

SECRET = "what-the-user-wrote"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Configure logs on a standard error of our own; calling it gives the lines so far."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    telemetry.configure("unit", "info")
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    structlog.reset_defaults()
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def _fail() -> None:
    try:
        json.loads("{" + SECRET)
    except ValueError as e:
        raise KeyError(SECRET) from e


def test_a_line_says_service_room_level_and_trace(lines: Any) -> None:
    telemetry.bind_trace("ab" * 16)
    telemetry.get_logger("r").info("did", count=3)
    telemetry.get_logger("r").debug("not said")
    telemetry.bind_trace("")
    telemetry.get_logger("r").info("did not")
    first, second = lines()
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "service": "unit",
        "room": "r",
        "level": "info",
        "event": "did",
        "count": 3,
        "trace": "ab" * 16,
    }
    assert "trace" not in second


def test_of_an_exception_the_type_and_the_places_are_logged_never_the_text(lines: Any) -> None:
    try:
        _fail()
    except KeyError as e:
        telemetry.get_logger("r").error("failed", exc_info=e)
        telemetry.get_logger("r").error("failed", exc_info=True)
    said = lines()
    assert SECRET not in json.dumps(said)
    for line in said:
        assert line["fault"]["type"] == "KeyError"
        assert line["fault"]["frames"][-1].startswith("tests/telemetry/test_logs.py:")
        assert line["fault"]["frames"][-1].endswith(" _fail")
        assert line["fault"]["cause"]["type"] == "json.decoder.JSONDecodeError"


def test_of_an_error_of_the_database_the_state_and_the_constraint_are_told() -> None:
    error = asyncpg.UniqueViolationError.new(
        {
            "S": "ERROR",
            "C": "23505",
            "M": f"duplicate key {SECRET}",
            "D": f"Key (id)=({SECRET}) already exists.",
            "t": "agents",
            "n": "agents_pkey",
        }
    )
    said = describe(error)
    assert said == {
        "type": "asyncpg.exceptions.UniqueViolationError",
        "sqlstate": "23505",
        "table_name": "agents",
        "constraint_name": "agents_pkey",
    }


def test_groups_and_long_chains_are_told_within_bounds() -> None:
    error: BaseException = ValueError(SECRET)
    for _ in range(50):
        outer = RuntimeError(SECRET)
        outer.__cause__ = error
        error = outer
    group = ExceptionGroup(SECRET, [Invalid(SECRET), error] + [OSError(5, SECRET)] * 20)
    said = json.dumps(describe(group))
    assert SECRET not in said
    assert '"libs.errors.Invalid"' in said
    assert '"errno": 5' in said
    assert len(said) < 3_000


def test_libraries_log_the_same_way(lines: Any) -> None:
    log = logging.getLogger("grpc._cython.cygrpc")
    try:
        _fail()
    except KeyError:
        log.exception("Unexpected [%s] raised by servicer method", SECRET)
    log.error(ValueError(SECRET))
    log.info("not said")
    warnings.warn(SECRET, stacklevel=1)
    said = lines()
    assert SECRET not in json.dumps(said)
    first, second, third = said
    assert (first["service"], first["room"], first["level"]) == ("unit", "grpc._cython.cygrpc", "error")
    assert first["event"] == "Unexpected [%s] raised by servicer method"
    assert first["fault"]["type"] == "KeyError"
    assert second["event"] == "ValueError"
    assert third["room"] == "py.warnings"
    assert third["event"].endswith(": UserWarning")


async def test_a_task_that_nobody_awaited_fails_without_its_text(lines: Any) -> None:
    async def fail() -> None:
        raise ValueError(SECRET)

    task = asyncio.create_task(fail())
    await asyncio.wait({task})
    del task
    (line,) = lines()
    assert line["event"] == "Task exception was never retrieved"
    assert line["fault"]["type"] == "ValueError"
    assert SECRET not in json.dumps(line)
