"""A stand-in for a server: answers and events as a test hands them in, signatures checked."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import WSMsgType, web

from libs.wire import Envelope, encode, verify_envelope

Handler = Callable[[Envelope], Awaitable[web.StreamResponse] | web.StreamResponse]


def answer(status: int = 200, /, *, retry_after: int | None = None, **body: Any) -> web.Response:
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
    return web.Response(status=status, body=encode(body), content_type="application/cbor", headers=headers)


class FakeServer:
    """`on_message` answers each request; `on_subscribe(socket, key, after_seq)` plays what a socket gets."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.on_message: Handler = lambda _: answer(_="ListAgentsResponse", agents=[])
        self.on_subscribe: Callable[[FakeSocket, str, int | None], Awaitable[None]] | None = None
        self.sockets: list[FakeSocket] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/api/message", self._message)
        app.router.add_get("/agents/ws", self._websocket)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _message(self, request: web.Request) -> web.StreamResponse:
        envelope = verify_envelope(await request.read(), now_ms=time.time() * 1000)
        self.envelopes.append(envelope)
        result = self.on_message(envelope)
        return await result if isinstance(result, Awaitable) else result

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        socket = FakeSocket(web.WebSocketResponse())
        await socket.ws.prepare(request)
        self.sockets.append(socket)
        await socket.send({"_": "connected", "connectedAt": 1})
        async for message in socket.ws:
            if message.type is WSMsgType.BINARY:
                envelope = verify_envelope(message.data, now_ms=time.time() * 1000)
                key, after = envelope.action["key"], envelope.action.get("afterSeq")
                socket.asked.append((key, after))
                assert self.on_subscribe is not None
                await self.on_subscribe(socket, key, after)
        socket.gone.set()
        return socket.ws


class FakeSocket:
    """The server's end of a socket. `asked` lists the subscriptions."""

    def __init__(self, ws: web.WebSocketResponse) -> None:
        self.ws = ws
        self.asked: list[tuple[str, int | None]] = []
        self.gone = asyncio.Event()

    async def send(self, event: dict[str, Any]) -> None:
        await self.ws.send_str(json.dumps(event))

    async def subscribed(self, key: str) -> None:
        await self.send({"_": "subscribed", "key": key, "accountId": "z6Mk"})

    async def append(self, session_id: str, seq: int, content: str = "x") -> None:
        event = {"type": "message", "role": "assistant", "content": content}
        stored = {"id": f"e{seq}", "sessionId": session_id, "seq": seq, "event": event, "createdAt": 1}
        await self.send({"_": "append", "key": f"sessions/{session_id}", "event": stored})

    async def partial(self, session_id: str, partial_id: str, **patch: Any) -> None:
        await self.send(
            {"_": "appendPartial", "key": f"sessions/{session_id}", "partialId": partial_id, "patch": patch}
        )

    async def error(self, message: str) -> None:
        await self.send({"_": "error", "message": message})

    async def close(self, code: int = 1001) -> None:
        # Called from within the socket's own handler too, so nobody may wait for the other side here.
        task = asyncio.ensure_future(self.ws.close(code=code))
        del task
