"""The verbs a turn offers, their schemas, and the rules of their input (runtime.md, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from libs.protocol.text import byte_length
from services.runs.providers.contract import ToolSpec

TITLE_BYTES = 256
DESCRIPTION_BYTES = 1024

PLAN = ToolSpec(
    name="plan",
    description=(
        "Write down or update the plan of this conversation: every step with its status. The call replaces the whole "
        "plan, so give all steps each time. Use it for work of several steps, and call it whenever a step changes."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "What the plan is for."},
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string", "description": "Stays the same over all calls."},
                        "label": {"type": "string", "minLength": 1},
                        "status": {"type": "string", "enum": ["pending", "running", "done", "failed", "skipped"]},
                    },
                    "required": ["id", "label", "status"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["steps"],
        "additionalProperties": False,
    },
)
STATUS = ToolSpec(
    name="status",
    description=(
        "Name this conversation: a short title, a one-sentence description, or both. Use it once the subject is clear "
        "and again when it changes."
    ),
    input_schema={
        "type": "object",
        "properties": {"title": {"type": "string", "minLength": 1}, "description": {"type": "string"}},
        "additionalProperties": False,
    },
)
VERBS = (PLAN, STATUS)


class VerbError(Exception):
    """A verb was called wrongly; the model gets the message as the tool's error."""


@dataclass(frozen=True, slots=True)
class StatusChange:
    """What a `status` call sets."""

    title: str | None
    description: str | None


def status_change(arguments: Mapping[str, Any]) -> StatusChange:
    """The change a `status` call asks for. Raises VerbError when it asks for none or breaks a limit."""
    title, description = arguments.get("title"), arguments.get("description")
    for name, value in (("title", title), ("description", description)):
        if value is not None and not isinstance(value, str):
            raise VerbError(f"status {name} must be text")
    title = title.strip() if isinstance(title, str) else None
    description = description.strip() if isinstance(description, str) else None
    if title is not None and not title:
        raise VerbError("status title must not be empty")
    if title is None and description is None:
        raise VerbError("status needs a title or a description")
    if title is not None and byte_length(title) > TITLE_BYTES:
        raise VerbError(f"status title is longer than {TITLE_BYTES} bytes")
    if description is not None and byte_length(description) > DESCRIPTION_BYTES:
        raise VerbError(f"status description is longer than {DESCRIPTION_BYTES} bytes")
    if "\0" in (title or "") + (description or ""):
        raise VerbError("status texts must not hold NUL characters")
    return StatusChange(title, description)


def detail(arguments: Any) -> str:
    """What a client shows beside a running tool: the first telling argument, on one line, at most 80 characters."""
    if not isinstance(arguments, Mapping):
        return ""
    for key in ("address", "tool", "id", "url", "query", "path", "command", "name", "title"):
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())[:80]
    return ""
