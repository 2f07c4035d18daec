"""The loop's messages and tools in pydantic-ai's neutral form, which its adapters turn into each wire format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai import messages as pa
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from services.runs.providers.contract import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
)


def to_history(system: str, messages: Sequence[Message], *, marks_errors: bool) -> list[pa.ModelMessage]:
    """The whole conversation. `marks_errors`: the wire format can say that a tool result is an error.

    Everything between two assistant messages is one request, because Anthropic and Google want all results of a reply
    in the message that follows it.
    """
    history: list[pa.ModelMessage] = []
    pending: list[pa.ModelRequestPart] = [pa.SystemPromptPart(content=system)] if system else []
    for message in messages:
        if isinstance(message, AssistantMessage):
            if pending:
                history.append(pa.ModelRequest(parts=pending))
                pending = []
            history.append(_response(message))
        elif isinstance(message, UserMessage):
            pending.append(pa.UserPromptPart(content=_user_content(message)))
        else:
            pending.append(_tool_return(message, marks_errors))
    if pending:
        history.append(pa.ModelRequest(parts=pending))
    return history


def to_parameters(tools: Sequence[ToolSpec]) -> ModelRequestParameters:
    """The tools of a request; their schemas are sent as they are, never in a provider's strict mode."""
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.input_schema),
                strict=False,
            )
            for tool in tools
        ]
    )


def _user_content(message: UserMessage) -> str | list[pa.UserContent]:
    if len(message.parts) == 1 and isinstance(message.parts[0], TextPart):
        return message.parts[0].text
    return [
        pa.BinaryContent(data=part.data, media_type=part.mime) if isinstance(part, ImagePart) else part.text
        for part in message.parts
    ]


def _response(message: AssistantMessage) -> pa.ModelResponse:
    if isinstance(message.native, pa.ModelResponse):
        return message.native
    return pa.ModelResponse(
        parts=[
            pa.ToolCallPart(tool_name=part.name, args=_arguments(part), tool_call_id=part.id)
            if isinstance(part, ToolCallPart)
            else pa.TextPart(content=part.text)
            for part in message.parts
        ]
    )


def _arguments(part: ToolCallPart) -> dict[str, object]:
    # Every provider refuses a replayed call whose arguments are not an object.
    return part.arguments if isinstance(part.arguments, dict) else {}


def _tool_return(message: ToolResultMessage, marks_errors: bool) -> pa.ToolReturnPart:
    return pa.ToolReturnPart(
        tool_name=message.name,
        content=message.text,
        tool_call_id=message.tool_call_id,
        # Where the wire has no mark for it, pydantic-ai would wrap the text in JSON instead.
        outcome="failed" if message.is_error and marks_errors else "success",
    )


def read_arguments(arguments: str | Mapping[str, Any] | None) -> dict[str, Any] | str:
    """Decoded tool arguments: an object (empty for no text at all), or the raw text of anything else."""
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if not arguments or not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except ValueError:
        return repaired(arguments)
    if not isinstance(value, dict):
        return repaired(arguments)
    # Only an escaped surrogate can make decoded text invalid Unicode.
    return _repaired_value(value) if "\\ud" in arguments.lower() else value


def repaired(text: str) -> str:
    """The same text as valid Unicode: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _repaired_value(value: Any) -> Any:
    if isinstance(value, str):
        return repaired(value)
    if isinstance(value, list):
        return [_repaired_value(item) for item in value]
    if isinstance(value, dict):
        return {repaired(key): _repaired_value(item) for key, item in value.items()}
    return value
