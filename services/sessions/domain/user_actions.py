"""What people do in a session with the agent's own verbs (runtime.md, section 11)."""

from __future__ import annotations

import uuid

import msgspec

from libs.errors import Invalid
from libs.protocol import json_bytes
from libs.protocol.limits import MIB

USER = "user"
TURN_LIVE = "The agent is working in this thread right now; wait for its turn to finish"
ACTION_RUNNING = "A user tool action is still running in this thread; wait for it to finish"
RESULT_STEP = "result"
INPUT_BYTES = MIB
"""Most bytes of an input as JSON: every turn of the session reads it again. Larger files are uploaded."""
_GIVEN_UP = (
    "What executed this action was interrupted before its result was stored. Whether it had any effect is unknown: "
    "look at the state of things before you do it again."
)


def check_input(given: bytes) -> None:
    """Let pass an input (JSON). Raises Invalid."""
    if len(given) > INPUT_BYTES:
        raise Invalid("Tool input is too large")


def call_id() -> str:
    """A fresh id of a tool call that a person makes."""
    return f"user-{uuid.uuid4()}"


def call_event(tool_call_id: str, verb: str, given: bytes) -> bytes:
    """JSON of the event that records the call; `given` is JSON of its input."""
    event = {"type": "tool_call", "id": tool_call_id, "name": verb, "input": msgspec.Raw(given), "actor": USER}
    return msgspec.json.encode(event)


def given_up(tool_call_id: str, verb: str) -> bytes:
    """JSON of the result of an action that nobody executes any more."""
    return json_bytes(
        {"type": "tool_result", "toolCallId": tool_call_id, "name": verb, "error": _GIVEN_UP, "actor": USER}
    )
