"""The OpenAI SDK's client with two hot paths shortened.

The SDK walks every request against its type hints and builds every streamed chunk field by field in Python: together
more than half of the CPU of a streamed call, the first part growing with the length of the conversation. What
pydantic-ai hands over is already in wire form, and pydantic's compiled validator builds the same chunk objects; chunks
that it does not accept (providers are liberal with the format) take the SDK's own way.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

import httpx2
from openai import AsyncOpenAI, AsyncStream, NotGiven, Omit
from openai._base_client import make_request_options
from openai.resources.chat import AsyncChat
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import ValidationError

_REQUEST_OPTIONS = ("extra_headers", "extra_query", "extra_body", "timeout")


class StreamingCompletions(AsyncCompletions):
    """`POST /chat/completions` with a body that is already in wire form."""

    async def create(self, **params: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Send the parameters that were given, as they are."""
        given = {key: value for key, value in params.items() if not isinstance(value, Omit | NotGiven)}
        options = {key: given.pop(key) for key in _REQUEST_OPTIONS if key in given}
        return await self._post(
            "/chat/completions",
            body=given,
            options=make_request_options(security={"bearer_auth": True}, **options),
            cast_to=ChatCompletion,
            stream=bool(given.get("stream")),
            stream_cls=AsyncStream[ChatCompletionChunk],
        )


class _StreamingChat(AsyncChat):
    @cached_property
    def completions(self) -> StreamingCompletions:  # pyright: ignore[reportIncompatibleMethodOverride]
        return StreamingCompletions(self._client)


class StreamingOpenAI(AsyncOpenAI):
    """`AsyncOpenAI` whose streamed chat completions cost less CPU."""

    @cached_property
    def chat(self) -> _StreamingChat:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The chat resource with the short request path."""
        return _StreamingChat(self)

    def _process_response_data(self, *, data: object, cast_to: type[Any], response: httpx2.Response) -> Any:
        if cast_to is ChatCompletionChunk:
            try:
                return cast(Any, ChatCompletionChunk.model_validate(data))
            except ValidationError:
                pass
        return super()._process_response_data(data=data, cast_to=cast_to, response=response)
