"""The OpenAI SDK's client with the hot paths of a streamed chat completion shortened.

The SDK walks every request against its type hints, builds it from options through several layers, and decodes every
streamed chunk field by field in Python: most of the CPU of a streamed call. What pydantic-ai hands over is already in
wire form, so it is sent as it is; chunks are built by pydantic's compiled validator, and chunks that it does not accept
(providers are liberal with the format) take the SDK's own way. Retries, refusals and connections are the gateway's.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any, cast

import httpx2
import msgspec
from openai import APIError, AsyncOpenAI, AsyncStream, NotGiven, Omit
from openai.resources.chat import AsyncChat
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletionChunk
from pydantic import ValidationError

from services.runs.providers.sse import EventReader

_HEADERS, _BODY = "extra_headers", "extra_body"
_LEFT_OUT = (_HEADERS, _BODY, "extra_query", "timeout")
_DONE = b"[DONE]"
_BROKEN = "An error occurred during streaming"


class StreamingCompletions(AsyncCompletions):
    """`POST /chat/completions` with a body that is already in wire form."""

    @cached_property
    def _url(self) -> httpx2.URL:
        return httpx2.URL(str(self._client.base_url).rstrip("/") + "/chat/completions")

    @cached_property
    def _headers(self) -> httpx2.Headers:
        client = self._client
        return httpx2.Headers(
            {
                "Accept": "application/json",
                "Authorization": f"Bearer {client.api_key}",
                "Content-Type": "application/json",
                "Host": self._url.netloc.decode("ascii"),
                "User-Agent": client.user_agent,
            }
        )

    async def create(self, **params: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Send the parameters that were given, as they are, and stream the answer.

        Raises what the transport raises: the SDK's own errors would only hide it.
        """
        given = {key: value for key, value in params.items() if not isinstance(value, Omit | NotGiven)}
        assert given.get("stream") is True, "only streamed completions are asked for"
        headers = self._headers
        if extra := given.get(_HEADERS):
            headers = headers.copy()
            headers.update(extra)
        body = {key: value for key, value in given.items() if key not in _LEFT_OUT}
        http = self._client._client
        request = httpx2.Request(
            "POST",
            self._url,
            headers=headers,
            content=msgspec.json.encode({**body, **(given.get(_BODY) or {})}),
            extensions={"timeout": http.timeout.as_dict()},
        )
        response = await http._transport.handle_async_request(request)
        return ChunkStream(cast_to=ChatCompletionChunk, response=response, client=self._client)


class ChunkStream(AsyncStream[ChatCompletionChunk]):
    """The chunks of one answer, read from its server-sent events without the SDK's objects in between."""

    async def __stream__(self) -> AsyncIterator[ChatCompletionChunk]:
        response, reader = self.response, EventReader()
        # Nothing was said about encodings, so a server that encodes all the same is the exception.
        pieces = response.aiter_bytes() if "content-encoding" in response.headers else response.stream
        done = False
        try:
            async for piece in cast(AsyncIterator[bytes], pieces):
                # Read to its end, the connection serves the next request.
                for event in () if done else reader.feed(piece):
                    if event.startswith(_DONE):
                        done = True
                        break
                    yield self._chunk(event)
        finally:
            await response.aclose()

    def _chunk(self, event: bytes) -> ChatCompletionChunk:
        if b'"error"' not in event:
            try:
                return ChatCompletionChunk.model_validate_json(event)
            except ValidationError:
                pass
        data = json.loads(event)
        if isinstance(data, dict) and (error := data.get("error")):
            message = error.get("message") if isinstance(error, dict) else None
            text = message if isinstance(message, str) and message else _BROKEN
            raise APIError(message=text, request=self.response.request, body=error)
        return cast(
            Any,
            self._client._process_response_data(data=data, cast_to=ChatCompletionChunk, response=self.response),
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
