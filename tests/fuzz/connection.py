"""One raw keep-alive connection to an edge: requests, pipelined when several are under way, and how long each took."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and body; `seconds` to the last byte, from the write or, behind another request, from its answer."""

    status: int
    body: bytes
    seconds: float


class Lost(Exception):
    """The connection ended before the answer was there. `begun`: the server may have been at work on the request."""

    def __init__(self, why: str, *, begun: bool) -> None:
        super().__init__(why)
        self.begun = begun


class _Protocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.waiting: deque[tuple[float, asyncio.Future[Reply]]] = deque()
        self.gone = False
        self._data = b""
        self._needed = 0
        self._answered = 0.0

    def data_received(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        while self._whole():
            answer, self._data = self._data[: self._needed], self._data[self._needed :]
            self._needed = 0
            now = time.perf_counter()
            head, _, body = answer.partition(b"\r\n\r\n")
            if b"connection: close" in head.lower():
                self.gone = True
            if self.waiting:
                sent, waiting = self.waiting.popleft()
                if not waiting.done():
                    waiting.set_result(Reply(int(head[9:12]), body, now - max(sent, self._answered)))
            self._answered = now

    def _whole(self) -> bool:
        if not self._needed:
            head = self._data.find(b"\r\n\r\n")
            if head < 0:
                return False
            at = self._data.lower().index(b"content-length:", 0, head) + 15
            self._needed = head + 4 + int(self._data[at : self._data.index(b"\r", at)])
        return len(self._data) >= self._needed

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        begun = True
        while self.waiting:
            _, waiting = self.waiting.popleft()
            if not waiting.done():
                waiting.set_exception(Lost(str(exc), begun=begun))
            begun = False


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
        self._connecting = asyncio.Lock()

    async def ask(self, body: bytes) -> Reply:
        """Send and wait; what stood behind a request that ended the connection is sent again.

        Raises Lost, TimeoutError.
        """
        while True:
            try:
                return await self._once(body)
            except Lost as e:
                if e.begun:
                    raise

    async def _once(self, body: bytes) -> Reply:
        loop = asyncio.get_running_loop()
        async with self._connecting:
            if self._transport is None or self._protocol.gone or self._transport.is_closing():
                transport, self._protocol = await loop.create_connection(_Protocol, self._host, self._port)
                self._transport = cast(asyncio.Transport, transport)
        waiting: asyncio.Future[Reply] = loop.create_future()
        self._protocol.waiting.append((time.perf_counter(), waiting))
        self._transport.write(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(PATIENCE_S):
            return await waiting

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):
                self._transport.close()
            self._transport = None
