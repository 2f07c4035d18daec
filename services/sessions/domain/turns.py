"""The turn ledger: which writes of a run count, and how a turn ends (runtime.md, sections 1, 2 and 9)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from libs.errors import Canceled, NotFound, StaleAttempt
from libs.protocol import json_bytes
from services.sessions.domain.fields import Fields

SUCCEEDED, FAILED, CANCELED = "succeeded", "failed", "canceled"
WAITING = "waiting"
"""A turn that parks: it goes on with a later BeginTurn."""
PARKED = "parked"
STOPPED_STEP = "stopped"
_CALL, _RESULT = b'"tool_call"', b'"tool_result"'
_INTERRUPTED = (
    "A restart interrupted this call before its result was stored. Whether it had any effect is unknown: "
    "verify the state of things before you call it again."
)

Turn = Fields
"""A row of session_turns."""


def check_attempt(turn: Turn, attempt: int) -> None:
    """Let pass the newest attempt. Raises NotFound for what was deleted, StaleAttempt for a fenced-off attempt."""
    if turn["state"] == "gone":
        raise NotFound(f"{turn['gone']} not found")
    if attempt < turn["attempt"]:
        raise StaleAttempt("A newer attempt has taken this turn over")


def check_write(turn: Turn, attempt: int, states: Collection[str] = ("live",)) -> None:
    """Let pass a write of a live turn. Raises as `check_attempt`, and Canceled when it was canceled or has ended."""
    check_attempt(turn, attempt)
    if turn["canceled"]:
        raise Canceled("The turn has been canceled")
    if turn["state"] not in states:
        raise Canceled("The turn has ended")


def check_finish(turn: Turn, attempt: int, status: str) -> None:
    """Let pass the end of a live turn.

    Ending it as canceled is allowed after a cancel, and with attempt 0 for a run that no worker holds. Raises as
    `check_write`.
    """
    if status == CANCELED:
        if attempt:
            check_attempt(turn, attempt)
        elif turn["state"] == "gone":
            raise NotFound(f"{turn['gone']} not found")
        return
    # A later attempt may end a parked turn without beginning it again.
    check_write(turn, attempt, states=("live", PARKED))


def is_plain_end(turn: Fields, attempt: int, status: str) -> bool:
    """Whether a turn may end so without a question: it is live, nobody has canceled it, and the claim is its own."""
    mine = attempt > 0 and turn["attempt"] == attempt
    return mine and turn["state"] == "live" and not turn["canceled"] and status in (SUCCEEDED, FAILED)


def session_status(live_turns: int, latest: str) -> str:
    """Status of a session with so many live turns, of which the latest to end had the status `latest`."""
    if live_turns > 0:
        return "streaming"
    return "error" if latest == FAILED else "idle"


def is_assistant_message(payload: bytes) -> bool:
    """Whether an event is a message of the assistant."""
    if b'"assistant"' not in payload:
        return False
    event = msgspec.json.decode(payload)
    return event.get("type") == "message" and event.get("role") == "assistant"


def assistant_message(text: str) -> bytes:
    """JSON of a message of the assistant with nothing but text."""
    return json_bytes({"type": "message", "role": "assistant", "content": text})


def error_event(text: str) -> bytes:
    """JSON of the event a failed turn leaves."""
    return json_bytes({"type": "error", "message": text})


def open_calls(payloads: Iterable[bytes]) -> dict[str, str]:
    """Calls the model made that stand without a result, in their order: id to name of the tool.

    An id may be used again by a later call: then the result before it does not count.
    """
    open_calls: dict[str, str] = {}
    for payload in payloads:
        if _CALL in payload or _RESULT in payload:
            event = msgspec.json.decode(payload)
            if event.get("type") == "tool_call" and event.get("actor", "agent") == "agent":
                open_calls[event["id"]] = event.get("name", "")
            elif event.get("type") == "tool_result":
                open_calls.pop(event.get("toolCallId", ""), None)
    return open_calls


def repairs(payloads: Iterable[bytes], waiting: Collection[str]) -> list[tuple[str, bytes]]:
    """Results for calls that will never get one: (step, JSON) for each, in the order of the calls.

    These are the calls the model made, without a result in the log, that no run in `waiting` still waits for
    (runtime.md, section 2.2).
    """
    return [
        (
            f"repair:{call}",
            json_bytes({"type": "tool_result", "toolCallId": call, "name": name, "error": _INTERRUPTED}),
        )
        for call, name in open_calls(payloads).items()
        if call not in waiting
    ]
