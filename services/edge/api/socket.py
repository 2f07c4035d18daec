"""One WebSocket: what it receives is handed on, what it is sent waits in a bounded queue for one writer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import WSMsgType, web

from libs.protocol import PROTOCOL_VERSION
from services.edge import metrics
from services.edge.domain.frames import Frame
from services.edge.domain.send_queue import Overflow, SendQueue
from services.edge.live.subscription import Subscription

_TRANSPORT_BYTES = 64 * 1024
"""What may wait in the transport before frames wait in our queue."""
_BATCH_BYTES = 64 * 1024
_ROOMY_BYTES = 256 * 1024
_CLOSE_S = 5.0
OVERFLOW = "overflow"
_PING, _PONG = 0x89, 0x8A


class LiveSocket:
    """A prepared WebSocket. run() serves it: `on_frame` gets each message as bytes, one at a time.

    `on_dropped` is told of partials that were left out. close() may be called from anywhere.
    """

    def __init__(
        self,
        ws: web.WebSocketResponse,
        request: web.BaseRequest,
        *,
        queue_bytes: int,
        on_frame: Callable[[LiveSocket, bytes | str], Awaitable[None]],
        on_dropped: Callable[[LiveSocket, Frame], None],
    ) -> None:
        self.account = ""
        self.protocol = PROTOCOL_VERSION
        """Version that its client speaks, as its frames say."""
        self.subscriptions: dict[str, Subscription] = {}
        transport = request.transport
        assert transport is not None
        self._ws, self._transport, self._drain = ws, transport, request.writer.drain
        self._queue = SendQueue(queue_bytes)
        self._on_frame, self._on_dropped = on_frame, on_dropped
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing: tuple[int, bytes] | None = None
        self._end = asyncio.Event()
        self._writing = False
        self._last_sign = self._loop.time()
        self._limit = queue_bytes

    # Sending

    def send(self, frame: Frame) -> None:
        """Send soon, in order. Too slow a socket loses partials, then old states, then is closed with 1013."""
        if self._closing is not None:
            return
        if frame.before is not None:
            frame = frame.shown_to(self.protocol)
        if not self._writing and not len(self._queue) and self._has_room():
            self._transport.write(frame.data)
            return
        try:
            dropped = self._queue.push(frame)
        except Overflow:
            self.close(1013, "Too slow, subscribe again", OVERFLOW)
            return
        for left_out in dropped:
            metrics.FRAMES_DROPPED.labels(left_out.kind.value).inc()
            self._on_dropped(self, left_out)
        self._wake.set()

    def roomy(self) -> bool:
        """Whether nothing much waits."""
        return self._queue.size < _ROOMY_BYTES

    async def send_all(self, frames: Iterable[Frame]) -> None:
        """Send many frames, waiting whenever the socket does not take more."""
        most = min(_ROOMY_BYTES, self._limit // 2)
        for frame in frames:
            while self._queue.size + len(frame.data) > most and len(self._queue) and self._closing is None:
                self._room.clear()
                await self._room.wait()
            self.send(frame)

    def _has_room(self) -> bool:
        return not self._transport.is_closing() and self._transport.get_write_buffer_size() < _TRANSPORT_BYTES

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._writing = True
            try:
                while batch := self._queue.pop(_BATCH_BYTES):
                    # A transport that was closed while it drained takes nothing any more, and says so with a fault.
                    if self._transport.is_closing():
                        raise ConnectionResetError
                    self._transport.write(batch)
                    self._room.set()
                    await self._drain()
                    self._last_sign = self._loop.time()
            except ConnectionError:
                self._queue.clear()
            finally:
                self._writing = False
                self._room.set()

    # Life

    def silent_s(self) -> float:
        """Seconds since it last sent or took something."""
        return self._loop.time() - self._last_sign

    def ping(self) -> None:
        """Send a ping frame; not behind what waits, for it asks about the connection."""
        self._control(_PING, b"")

    def _control(self, opcode: int, payload: bytes) -> None:
        # A control frame has at most 125 bytes and is never fragmented.
        if self._closing is None and not self._transport.is_closing():
            self._transport.write(bytes((opcode, len(payload))) + payload)

    def close(self, code: int, reason: str, cause: str) -> None:
        """Begin to close, after what waits; but what was too much is dropped."""
        if self._closing is None:
            self._closing = (code, reason.encode())
            if cause != OVERFLOW and not self._transport.is_closing():
                self._transport.write(self._queue.pop(self._limit))
            self._queue.clear()
            self._room.set()
            self._end.set()
            metrics.SOCKETS_CLOSED.labels(cause).inc()

    async def run(self) -> None:
        """Serve until either side closes."""
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._write())
            reader = group.create_task(self._read())
            closer = group.create_task(self._close())
            await asyncio.wait((reader, closer), return_when=asyncio.FIRST_COMPLETED)
            for task in (writer, reader, closer):
                task.cancel()

    async def _read(self) -> None:
        while True:
            try:
                message = await self._ws.receive()
            except ConnectionError:
                return
            self._last_sign = self._loop.time()
            if message.type in (WSMsgType.BINARY, WSMsgType.TEXT):
                await self._on_frame(self, message.data)
                self._last_sign = self._loop.time()
            elif message.type is WSMsgType.PING:
                self._control(_PONG, message.data)
            elif message.type is not WSMsgType.PONG:
                return

    async def _close(self) -> None:
        await self._end.wait()
        assert self._closing is not None
        code, reason = self._closing
        try:
            await asyncio.wait_for(self._ws.close(code=code, message=reason, drain=False), _CLOSE_S)
        except (TimeoutError, ConnectionError):
            self._transport.abort()
