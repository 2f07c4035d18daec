"""One raw keep-alive connection to an edge: a request, its answer, how long it took."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and body; `seconds` from the write to the last byte."""

    status: int
    body: bytes
    seconds: float


class Lost(Exception):
    """The connection ended before the answer was there."""


class _Protocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.waiting: asyncio.Future[bytes] | None = None
        self.gone = False
        self._data = b""
        self._needed = 0

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._needed:
            head = self._data.find(b"\r\n\r\n")
            if head < 0:
                return
            at = self._data.lower().index(b"content-length:", 0, head) + 15
            self._needed = head + 4 + int(self._data[at : self._data.index(b"\r", at)])
        if len(self._data) >= self._needed and self.waiting is not None and not self.waiting.done():
            answer, self._data, self._needed = self._data, b"", 0
            self.waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(Lost(str(exc)))


class Connection:
    """To the edge at `url`; made anew whenever the edge has closed it."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._host, self._port = at.hostname or "", at.port or 0
        self._head = (
            f"POST /api/message HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/cbor\r\nContent-Length: "
        )
        self._transport: asyncio.Transport | None = None
        self._protocol = _Protocol()

    async def ask(self, body: bytes) -> Reply:
        """Send and wait. Raises Lost, TimeoutError."""
        loop = asyncio.get_running_loop()
        if self._transport is None or self._protocol.gone or self._transport.is_closing():
            transport, self._protocol = await loop.create_connection(_Protocol, self._host, self._port)
            self._transport = cast(asyncio.Transport, transport)
        waiting = self._protocol.waiting = loop.create_future()
        started = time.perf_counter()
        self._transport.write(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(PATIENCE_S):
            answer = await waiting
        seconds = time.perf_counter() - started
        head, _, rest = answer.partition(b"\r\n\r\n")
        if b"connection: close" in head.lower():
            self.close()
        return Reply(int(head[9:12]), rest, seconds)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):
                self._transport.close()
            self._transport = None
