"""The `delegate` verb: what it asks for, and what its answer says (runtime.md, section 7)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.protocol import json_bytes
from libs.protocol import schema_subset as schema
from libs.protocol.text import byte_length, derived_title
from services.runs.domain.verbs import TITLE_BYTES, VerbError
from services.runs.providers.contract import ToolSpec

BRIEF_BYTES = 64 * 1024

DELEGATE = ToolSpec(
    name="delegate",
    description=(
        "Give a part of the work to a helper with a conversation of its own. Say in `brief` all it has to know: it "
        "does not see this conversation. By default you get its answer as the result of this call, once it is done; "
        "several calls in one reply work side by side. With `await` false it works on its own and nothing comes "
        "back. `prompt` gives the helper instructions in place of yours, `agentId` makes it another agent of the "
        "account, `tools` narrows what it may use, `output` is a JSON Schema of what it must return."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "brief": {"type": "string"},
            "input": {},
            "prompt": {"type": "string"},
            "agentId": {"type": "string"},
            "tools": {"type": "array", "items": {"type": "string"}},
            "output": {"type": "object"},
            "await": {"type": "boolean"},
        },
        "additionalProperties": False,
    },
)


def return_result(output: Mapping[str, Any]) -> ToolSpec:
    """The tool by which a typed child delivers what its parent declared."""
    return ToolSpec(
        name="return_result",
        description="Deliver the result of the work you were given. Call it exactly once, when you are done.",
        input_schema={"type": "object", **output},
    )


@dataclass(frozen=True, slots=True)
class Delegation:
    """A checked `delegate` call of a model child."""

    title: str
    titled: bool
    brief: str
    agent_id: str
    spec: dict[str, Any]
    detached: bool


def parse(arguments: Mapping[str, Any]) -> Delegation:
    """The delegation a call asks for. Raises VerbError with a text for the model."""
    if arguments.get("script") is not None:
        if arguments.get("brief") is not None:
            raise VerbError("delegate takes either a brief or a script, not both")
        raise VerbError("delegate: this server does not run scripts yet. Give a `brief` instead.")
    prompt, agent_id = _text(arguments, "prompt"), _text(arguments, "agentId")
    brief = _brief(arguments)
    if brief is None and prompt:
        # A prompt alone says what is to be done.
        brief, prompt = prompt, ""
    if brief is None or not brief.strip():
        raise VerbError("delegate requires a `brief`: say what the helper has to do and all it has to know")
    if byte_length(brief) > BRIEF_BYTES:
        raise VerbError("delegate brief is too large")
    if prompt and agent_id:
        raise VerbError("delegate takes either a prompt or an agentId, not both")
    spec: dict[str, Any] = {"prompt": prompt} if prompt else {}
    tools, output = arguments.get("tools"), arguments.get("output")
    if tools is not None:
        if not (isinstance(tools, list) and all(isinstance(t, str) for t in tools)):
            raise VerbError("delegate tools must be a list of names")
        spec["tools"] = tools
    if output is not None:
        faults = schema.refusals(output)
        if faults:
            raise VerbError("delegate output schema is not supported: " + "; ".join(faults))
        spec["output"] = output
    detached = arguments.get("await") is False
    if detached and (agent_id or tools is not None or output is not None):
        raise VerbError("delegate with await false takes no agentId, tools or output")
    title = _text(arguments, "title")
    if byte_length(title) > TITLE_BYTES:
        raise VerbError(f"delegate title is longer than {TITLE_BYTES} bytes")
    named = title or derived_title(brief.replace("\0", "")) or "Delegated work"
    return Delegation(named, bool(title), brief, agent_id, spec, detached)


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise VerbError(f"delegate {name} must be text")
    return (value or "").replace("\0", "").strip()


def _brief(arguments: Mapping[str, Any]) -> str | None:
    value = arguments.get("brief")
    if value is None:
        value = arguments.get("input")
    if value is None or isinstance(value, str):
        return value
    return "```json\n" + msgspec.json.format(json_bytes(value), indent=2).decode() + "\n```"


def child_run_id(run_id: str, tool_call_id: str, step: str) -> str:
    """Id of the run that a call delegates: the same whenever the same call is executed again."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run_id}\n{step}\n{tool_call_id}"))


def first_message(brief: str) -> bytes:
    """JSON of the message a delegated conversation begins with."""
    return msgspec.json.encode({"type": "message", "role": "user", "content": brief, "rawMarkdown": brief})


def answer(
    status: str, run_id: str, session_id: str | None, output: bytes | None, error: bytes | None
) -> dict[str, Any]:
    """What the parent's call is answered with when a child has become terminal."""
    told: dict[str, Any] = {"status": status, "runId": run_id}
    if session_id:
        told["sessionId"] = session_id
    if status == "succeeded":
        told["output"] = msgspec.json.decode(output) if output else None
    elif status == "failed":
        told["error"] = msgspec.json.decode(error) if error else {"code": "executor-error", "message": "The run failed"}
        told["error"] = {k: v for k, v in told["error"].items() if k in ("code", "message")}
    return told
