"""One reply of a model: from the library's stream of parts to the loop's events."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic_ai import messages as pa
from pydantic_ai.models import StreamedResponse

from services.runs.providers.contract import (
    FinishReason,
    ProviderError,
    ReplyDone,
    ReplyEvent,
    TextDelta,
    ToolCallPart,
    ToolCallReady,
    Usage,
)
from services.runs.providers.errors import BROKE_OFF
from services.runs.providers.history import read_arguments, repaired

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "error": "error",
}


async def reply_events(stream: StreamedResponse) -> AsyncIterator[ReplyEvent]:
    """The events of one reply; raises `ProviderError` when it ends before the provider said that it is complete."""
    pieces = _Pieces()
    async for event in stream:
        piece = ""
        if isinstance(event, pa.PartDeltaEvent):
            if isinstance(event.delta, pa.TextPartDelta):
                piece = event.delta.content_delta
        elif isinstance(event, pa.PartStartEvent) and isinstance(event.part, pa.TextPart):
            piece = event.part.content
        if piece and (text := pieces.add(piece)):
            yield TextDelta(text)
    if text := pieces.end():
        yield TextDelta(text)
    response = stream.get()
    details = response.provider_details or {}
    refusal = details.get("refusal")
    # `response.finish_reason` would not do: where the provider gave none, the library assumes one.
    if not details.get("finish_reason") and not refusal:
        raise ProviderError(BROKE_OFF, retryable=True)
    # A refusal is what the model says instead of an answer, so the reader gets it as one.
    if isinstance(refusal, str) and refusal and not pieces.text():
        yield TextDelta(pieces.add(refusal) + pieces.end())
    calls = [
        ToolCallPart(id=part.tool_call_id, name=part.tool_name, arguments=read_arguments(part.args))
        for part in response.parts
        if isinstance(part, pa.ToolCallPart)
    ]
    for call in calls:
        yield ToolCallReady(call)
    finish = _FINISH.get(response.finish_reason or "", "unknown")
    if finish == "error":
        raise ProviderError("Model provider ended its reply with an error", retryable=True)
    yield ReplyDone(
        text=pieces.text(),
        tool_calls=calls,
        usage=_usage(response),
        finish="tool_calls" if calls and finish in ("stop", "unknown") else finish,
        # A call whose arguments are no object cannot be sent back as it came.
        native=response if all(isinstance(call.arguments, dict) for call in calls) else None,
    )


def _usage(response: pa.ModelResponse) -> Usage:
    usage = response.usage
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return Usage(
        input=max(0, usage.input_tokens - cached),  # the library counts cached tokens as input too
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
    )


class _Pieces:
    """Text as it arrives, always valid Unicode: a surrogate pair split over two pieces is joined again."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""

    def add(self, piece: str) -> str:
        if piece.isascii() and not self._held:
            self._pieces.append(piece)
            return piece
        piece = self._held + piece
        self._held = ""
        if "\ud800" <= piece[-1] <= "\udbff":
            piece, self._held = piece[:-1], piece[-1]
        return self._keep(piece)

    def end(self) -> str:
        held, self._held = self._held, ""
        return self._keep(held)

    def text(self) -> str:
        return "".join(self._pieces)

    def _keep(self, piece: str) -> str:
        if piece:
            piece = repaired(piece)
            self._pieces.append(piece)
        return piece
