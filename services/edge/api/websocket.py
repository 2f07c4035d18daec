"""`GET /agents/ws`: upgrade, verify Subscribe frames, answer refusals (websocket.md, sections 1, 2 and 7)."""

from __future__ import annotations

import time

import msgspec
from aiohttp import web

from libs import telemetry
from libs.errors import Forbidden, Internal, Invalid, SeedError, TooMany
from libs.protocol import PROTOCOL_VERSION, SOCKET_ONLY
from services.edge.api.http import text_response
from services.edge.api.socket import LiveSocket
from services.edge.api.verify import Verifier
from services.edge.domain.rates import Rates
from services.edge.live import encode
from services.edge.live.hub import Hub
from services.edge.live.signers import Signers
from services.edge.live.tracker import Tracker

log = telemetry.get_logger("websocket")

UNSUBSCRIBE = "Unsubscribe"
FRAME_BYTES = 256 * 1024
"""Largest frame a client may send; a Subscribe envelope has some hundred bytes, four times that as a JSON array."""
_BYTES = msgspec.json.Decoder(list[int])


class WebSockets:
    """Serves all WebSockets of this edge. `queue_bytes` is what may wait for a slow one."""

    def __init__(
        self, verifier: Verifier, hub: Hub, tracker: Tracker, signers: Signers, rates: Rates, *, queue_bytes: int
    ) -> None:
        self._verifier, self._hub, self._tracker, self._queue_bytes = verifier, hub, tracker, queue_bytes
        self._rates, self._signers = rates, signers
        self._closing = False

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Take over one request."""
        ws = web.WebSocketResponse(autoping=False, compress=False, max_msg_size=FRAME_BYTES)
        if not ws.can_prepare(request):
            return text_response(400, "WebSocket upgrade failed")
        address = request.remote or ""
        if self._tracker.full(address):
            return text_response(429, "Too many sockets")
        if self._closing:
            return text_response(503, "Server shutting down")
        ws.headers["X-Agents-Protocol"] = str(PROTOCOL_VERSION)
        await ws.prepare(request)
        socket = LiveSocket(
            ws, request, queue_bytes=self._queue_bytes, on_frame=self._on_frame, on_dropped=self._hub.dropped
        )
        self._tracker.enter(socket, address)
        try:
            socket.send(encode.connected(int(time.time() * 1000)))
            await socket.run()
        finally:
            self._hub.leave(socket)
            self._tracker.exit(socket)
            self._signers.exit(socket)
        return ws

    def close_all(self) -> None:
        """Close every socket and take no more: the server stops."""
        self._closing = True
        self._tracker.close_all(1001, "Server shutting down")

    async def _on_frame(self, socket: LiveSocket, data: bytes | str) -> None:
        telemetry.new_trace()
        try:
            with telemetry.span("frame", "server"):
                await self._subscribe(socket, _frame_bytes(data))
        except SeedError as e:
            socket.send(encode.error(e.message, e.code))
        except Exception as e:  # a fault of ours: logged here once, masked for the client
            log.error("subscribe failed", error=type(e).__name__, exc_info=e)
            socket.send(encode.error(Internal("Internal server error").message, None))

    async def _subscribe(self, socket: LiveSocket, body: bytes) -> None:
        envelope = await self._verifier.verify(body)
        self._rates.account(envelope.account)
        if envelope.name not in SOCKET_ONLY:
            raise Invalid("Expected Subscribe action")
        if socket.account and socket.account != envelope.account:
            raise Forbidden("WebSocket account switch is not allowed")
        if envelope.name == UNSUBSCRIBE:
            self._hub.unsubscribe(socket, envelope.account, envelope.action)
            return
        if not socket.account and self._tracker.full_account(envelope.account):
            socket.send(encode.error(TooMany("Too many sockets").message, None))
            socket.close(1013, "Too many sockets", "account")
            return
        socket.protocol = envelope.protocol
        self._signers.bind(socket, envelope.account, envelope.signer)
        # Counted while the first subscription is still being made, or many at once would all fit.
        self._tracker.bind(socket, envelope.account)
        try:
            await self._hub.subscribe(socket, envelope.account, envelope.action)
        finally:
            if not socket.account:
                self._tracker.unbind(socket)


def _frame_bytes(data: bytes | str) -> bytes:
    if isinstance(data, bytes):
        return data
    # Old clients send the envelope as a JSON array of byte values.
    try:
        return bytes(_BYTES.decode(data))
    except (msgspec.MsgspecError, ValueError):
        raise Invalid("Invalid CBOR request") from None
