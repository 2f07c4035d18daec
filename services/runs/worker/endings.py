"""The ending of a run, as the ledger of turns has the end of its turn."""

from __future__ import annotations

from typing import Any

import msgspec
from seed.sessions.v1 import types_pb2

from libs.store import Row
from services.runs.store.endings import Ending

NOT_TYPED = "output-schema"
RESULT_MISSING = "The work ended without the result it was asked for"
RESULT_REFUSED = "The result did not have the declared shape after three attempts"
_CODES = {500: "executor-error", 502: "provider-error"}


def error(code: str, message: str) -> bytes:
    """JSON of the public RunErrorInfo."""
    return msgspec.json.encode({"code": code, "message": message})


def of(done: types_pb2.TurnOutcome, **more: Any) -> Ending:
    """The ending of a run whose turn has ended so; `more` are other fields of Ending."""
    return Ending(
        done.status,
        assistant_event_id=done.assistant_event_id,
        error_status=done.error_status,
        gone=done.gone,
        continued_to=done.continued_to_session_id,
        **more,
    )


def recorded(done: types_pb2.TurnOutcome, row: Row) -> Ending:
    """The ending that an earlier claim of run `row` wrote down without ending the run."""
    code = _CODES.get(done.error_status, "config-error")
    if done.error_message in (RESULT_MISSING, RESULT_REFUSED):
        code = NOT_TYPED
    failed = error(code, done.error_message) if done.error_message else None
    return of(done, error=failed, output=row["output"], unmet_obligations=row["unmet_obligations"])
