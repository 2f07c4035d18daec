"""A provider request on its way out, the same for every wire format: defaults merged in, then up to three attempts."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec

from libs.egress import EgressRefused
from services.runs.providers.errors import from_response, is_retryable_status, retry_after_seconds

_MAX_ATTEMPTS = 3
_FIRST_BACKOFF_S = 0.5
_MAX_RETRY_AFTER_S = 10.0
_MAX_ERROR_BODY_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Waiting:
    """How to wait between attempts: `sleep(seconds)` and a random number in [0, 1) for the jitter."""

    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float] = random.random


@dataclass(slots=True)
class Exchange:
    """The responses opened for one reply.

    Not every library closes its connection when its stream is left early, so the reply does it, here.
    """

    responses: list[httpx2.Response] = field(default_factory=list)

    @contextmanager
    def collecting(self) -> Generator[None]:
        """Collect the responses opened inside this block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    async def close(self) -> None:
        """Close all connections that are still open, without reading what is left."""
        for response in self.responses:
            await response.aclose()


_current: ContextVar[Exchange | None] = ContextVar("provider_exchange", default=None)


class ProviderTransport(httpx2.AsyncBaseTransport):
    """Merges `model_defaults` over each JSON payload and retries what failed before its first byte.

    A final refusal is raised as `ProviderError`. The inner transport is shared and is not closed with this one.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, model_defaults: Mapping[str, Any], waiting: Waiting) -> None:
        self._inner = inner
        self._defaults = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in model_defaults.items()}
        self._waiting = waiting

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request, at most three times; raises `ProviderError` and `httpx2.TransportError`."""
        if self._defaults:
            request = await self._merged(request)
        attempt = 1
        while True:
            try:
                response = await self._inner.handle_async_request(request)
            except EgressRefused:
                raise
            except (httpx2.NetworkError, httpx2.ConnectTimeout, httpx2.RemoteProtocolError):
                # Nothing of an answer has arrived: no connection, or a pooled one that the other side had closed.
                if attempt == _MAX_ATTEMPTS:
                    raise
                wait_s = None
            else:
                if response.status_code < 400:
                    if exchange := _current.get():
                        exchange.responses.append(response)
                    return response
                wait_s = retry_after_seconds(response.headers.get("retry-after"))
                if attempt == _MAX_ATTEMPTS or not is_retryable_status(response.status_code):
                    raise from_response(response.status_code, await _start_of_body(response), wait_s)
                await response.aclose()
            await self._waiting.sleep(self._pause(attempt, wait_s))
            attempt += 1

    def _pause(self, attempt: int, asked_s: float | None) -> float:
        if asked_s is not None:
            return min(asked_s, _MAX_RETRY_AFTER_S)
        backoff = _FIRST_BACKOFF_S * 2 ** (attempt - 1)
        return backoff * (0.75 + 0.5 * self._waiting.jitter())

    async def _merged(self, request: httpx2.Request) -> httpx2.Request:
        payload = msgspec.json.decode(await request.aread(), type=dict[str, msgspec.Raw])
        payload.update(self._defaults)
        headers = request.headers.copy()
        headers.pop("content-length", None)
        return httpx2.Request(
            request.method,
            request.url,
            headers=headers,
            content=msgspec.json.encode(payload),
            extensions=request.extensions,
        )


async def _start_of_body(response: httpx2.Response) -> bytes:
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) >= _MAX_ERROR_BODY_BYTES:
                break
    except httpx2.HTTPError:
        pass  # the status alone still tells what happened
    finally:
        await response.aclose()
    return body[:_MAX_ERROR_BODY_BYTES]
