"""Reading request bodies under limits: of one body, of all together, of time."""

from __future__ import annotations

import asyncio

from aiohttp import StreamReader, hdrs, web

from libs.errors import SeedError, TooLarge, Unavailable
from services.edge import metrics

RATE_BYTES_PER_S = 64 * 1024
"""A body may take a second longer for every so many bytes of it."""


class TooSlow(SeedError):
    """408: the body did not arrive in time."""

    status = 408
    reason = "TOO_SLOW"


class UnsupportedMedia(SeedError):
    """415: the body is not declared as what the route takes."""

    status = 415
    reason = "UNSUPPORTED_MEDIA"


class Bodies:
    """The budget of all bodies in flight. `limit` and `budget` are bytes, `timeout_s` what a body may take at least."""

    def __init__(self, *, limit: int, budget: int, timeout_s: float) -> None:
        self._limit, self._budget, self._timeout_s = limit, budget, timeout_s
        self._held = 0
        metrics.BODY_BYTES.set_function(lambda: self._held)

    def hold(self, size: int) -> None:
        """Take `size` bytes of the budget. Raises Unavailable when it is used up."""
        if self._held + size > self._budget:
            raise Unavailable("The server is busy, try again", retry_after_s=1)
        self._held += size

    def give_back(self, size: int) -> None:
        """Return what was held, once the request is answered."""
        self._held -= size

    async def read(self, request: web.BaseRequest, *, limit: int = 0) -> tuple[bytes, int]:
        """The whole body and how much of the budget it holds; the caller gives that back. `limit` is a lower one.

        Raises TooLarge (before reading, when the length is stated), Unavailable, TooSlow.
        """
        most = min(limit or self._limit, self._limit)
        stated = request.content_length
        if stated is not None and stated > most:
            raise TooLarge("Request body is too large")
        content = request.content
        if content.is_eof():
            body = content.read_nowait()
            if len(body) > most:
                raise TooLarge("Request body is too large")
            self.hold(len(body))
            return body, len(body)
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return await self._collect(content, stated or 0, most)

    async def _collect(self, content: StreamReader, stated: int, most: int) -> tuple[bytes, int]:
        self.hold(stated)
        held, size = stated, 0
        chunks: list[bytes] = []
        started = asyncio.get_running_loop().time()
        try:
            while True:
                async with asyncio.timeout_at(started + self._timeout_s + size / RATE_BYTES_PER_S):
                    chunk = await content.readany()
                if not chunk:
                    return b"".join(chunks), held
                size += len(chunk)
                if size > most:
                    raise TooLarge("Request body is too large")
                if size > held:
                    self.hold(size - held)
                    held = size
                chunks.append(chunk)
        except TimeoutError:
            self.give_back(held)
            raise TooSlow("Request body did not arrive in time") from None
        except BaseException:
            self.give_back(held)
            raise
