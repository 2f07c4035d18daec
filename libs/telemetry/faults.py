"""What may be said of an exception: its type and where it was raised, never its text.

Texts of exceptions quote what they are about: asyncpg prints the values of a row, codecs the bytes they could not read.
Those may be messages of users, tool output or secrets, so no log line holds them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Any

_HOME = str(Path(__file__).resolve().parents[2]) + "/"
_LIBRARIES = "site-packages/"
_FRAMES = 30
_DEPTH = 6
_MEMBERS = 4

# Names of the schema and numbers; none of them is made of what a user sent.
_SAFE = ("sqlstate", "schema_name", "table_name", "column_name", "constraint_name", "errno", "status_code")


def describe(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """Type, frames (outermost first), SQLSTATE and the like of an exception, its cause and its members."""
    kind = type(error)
    said: dict[str, Any] = {"type": kind.__qualname__ if kind.__module__ == "builtins" else _full_name(kind)}
    for name in _SAFE:
        value = getattr(error, name, None)
        if isinstance(value, str | int) and value != "":
            said[name] = value
    frames = _frames(error.__traceback__)
    if frames:
        said["frames"] = frames
    if depth < _DEPTH:
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None:
            said["cause"] = describe(cause, depth + 1)
        if isinstance(error, BaseExceptionGroup):
            said["members"] = [describe(e, depth + 1) for e in error.exceptions[:_MEMBERS]]
    return said


def exception_of(exc_info: Any) -> BaseException | None:
    """The exception that logging's `exc_info` argument (True, an exception or a tuple) stands for."""
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return exc_info[1]
    return sys.exc_info()[1] if exc_info else None


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _frames(traceback: TracebackType | None) -> list[str]:
    frames: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{_short(code.co_filename)}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return frames[-_FRAMES:]


def _short(path: str) -> str:
    library = path.rpartition(_LIBRARIES)[2]
    return library if library != path else path.removeprefix(_HOME)
