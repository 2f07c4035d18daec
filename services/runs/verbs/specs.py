"""The verbs of the Space as models are offered them."""

from __future__ import annotations

from collections.abc import Sequence

from services.runs.domain.addresses import Form
from services.runs.providers.contract import ToolSpec


def read_spec(forms: Sequence[Form]) -> ToolSpec:
    """`read`, for these forms of addresses."""
    return ToolSpec(
        name="read",
        description=(
            "Look at what stands at an address. Addresses: "
            + "; ".join(_READING[form.prefix] for form in forms if form.prefix in _READING)
            + ". A path that ends with a slash is a listing."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "address": {"type": "string", "minLength": 1},
                "format": {"type": "string", "enum": ["markdown", "json"]},
                "options": {"type": "object"},
            },
            "required": ["address"],
            "additionalProperties": False,
        },
    )


def write_spec(forms: Sequence[Form]) -> ToolSpec:
    """`write`, for these forms of addresses."""
    return ToolSpec(
        name="write",
        description=(
            "Change what stands at an address. Addresses: "
            + "; ".join(_WRITING[form.prefix] for form in forms if form.prefix in _WRITING)
            + ". `dryRun` tries a write without effect, where that is possible."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "address": {"type": "string", "minLength": 1},
                "content": {"type": "string"},
                "options": {"type": "object"},
                "dryRun": {"type": "boolean"},
            },
            "required": ["address"],
            "additionalProperties": False,
        },
    )


CALL = ToolSpec(
    name="call",
    description=(
        "Use a tool of `~/tools/` by its name, with the input that its contract asks for. Input that does not fit gets "
        "you the contract; a name that is not known gets you the list of tools."
    ),
    input_schema={
        "type": "object",
        "properties": {"tool": {"type": "string", "minLength": 1}, "input": {"type": "object"}},
        "required": ["tool"],
        "additionalProperties": False,
    },
)

_READING = {
    "~/memory": "`~/memory/<path>`, your files",
    "~/tools": "`~/tools/<name>`, what you can call and how",
    "~/triggers": "`~/triggers/<name>`, what wakes you",
    "~/self": "`~/self`, how you are set up",
    "attachment:": "`attachment:<id>`, a file that somebody attached here",
    "thread:": (
        "`thread:`, the conversations of this account (options query, agentId, limit), and `thread:<id>`, one of them"
    ),
    "run:": "`run:<id>`, a piece of work",
}
_WRITING = {
    "~/memory": (
        "`~/memory/<path>` with the whole new content, or with options delete: true, fromUrl: an address to download, "
        "or fromAttachment: the id of an attachment"
    ),
    "~/tools": "`~/tools/<name>` with a tool document as JSON, or options delete: true",
    "~/triggers": "`~/triggers/<name>` with a trigger as JSON, or options delete: true",
}
