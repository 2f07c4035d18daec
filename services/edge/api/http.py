"""The HTTP surface (envelope.md, section 6): one handler for every request, no middlewares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web
from multidict import CIMultiDict

from libs import telemetry
from libs.errors import Internal, SeedError
from libs.protocol import PROTOCOL_VERSION
from services.edge.api.body import Bodies, UnsupportedMedia
from services.edge.api.call import Streamed
from services.edge.api.dispatch import Dispatcher, error_answer
from services.edge.api.info import Info
from services.edge.api.webhooks import PATH as WEBHOOKS
from services.edge.api.webhooks import Webhooks
from services.edge.domain.proxies import Proxies
from services.edge.domain.rates import Rates
from services.edge.domain.replay import Answer

log = telemetry.get_logger("http")

MESSAGE = frozenset({"/api/message", "/agents/api/message"})
HEALTH = frozenset({"/api/health", "/agents/api/health"})
VERSION = frozenset({"/api/version", "/agents/api/version"})
WEBSOCKET = "/agents/ws"

_PROTOCOL = {"X-Agents-Protocol": str(PROTOCOL_VERSION), hdrs.SERVER: "seed-agents"}
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": "Content-Type, Accept",
    "Access-Control-Expose-Headers": "X-Agents-Protocol",
    **_PROTOCOL,
}
_CBOR = {hdrs.CONTENT_TYPE: "application/cbor", "Access-Control-Allow-Methods": "POST, OPTIONS", **_CORS}
_PREFLIGHT = {"Access-Control-Allow-Methods": "GET, POST, OPTIONS", **_CORS}
_JSON = {hdrs.CONTENT_TYPE: "application/json", **_PREFLIGHT}
_TEXT = {
    hdrs.CONTENT_TYPE: "text/plain; charset=utf-8",
    "Access-Control-Expose-Headers": "X-Agents-Protocol",
} | _PROTOCOL


def text_response(status: int, text: str) -> web.Response:
    """A plain text answer."""
    return web.Response(status=status, body=text.encode(), headers=_TEXT)


class Routes:
    """Answers every request. `websocket` takes over requests to `/agents/ws`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        bodies: Bodies,
        info: Info,
        websocket: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        rates: Rates,
        webhooks: Webhooks,
        proxies: Proxies,
    ) -> None:
        self._dispatcher, self._bodies, self._info, self._websocket = dispatcher, bodies, info, websocket
        self._rates, self._webhooks, self._proxies = rates, webhooks, proxies
        # Copied by every response: building it from a dict costs more.
        self._cbor = CIMultiDict(_CBOR)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The one entry."""
        if self._proxies:
            address = self._proxies.client(request.remote or "", request.headers.getall(hdrs.X_FORWARDED_FOR, ()))
            request = request.clone(remote=address)
        method, path = request.method, request.path
        if path in MESSAGE:
            if method == hdrs.METH_POST:
                return await self._message(request)
            if method == hdrs.METH_OPTIONS:
                return web.Response(status=204, headers=_PREFLIGHT)
        elif method == hdrs.METH_POST:
            if path.startswith(WEBHOOKS):
                return await self._webhooks.handle(request)
        elif method == hdrs.METH_GET:
            if path == WEBSOCKET:
                return await self._websocket(request)
            if path in HEALTH:
                return web.Response(body=self._info.health(), headers=_JSON)
            if path in VERSION:
                return web.Response(body=self._info.version(), headers=_JSON)
        return text_response(404, "Not Found")

    async def _message(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            self._rates.address(request.remote or "")
            declared = request.headers.get(hdrs.CONTENT_TYPE, "")
            if declared.partition(";")[0].strip().lower() != "application/cbor":
                raise UnsupportedMedia("Content-Type must be application/cbor")
            body, held = await self._bodies.read(request)
        except SeedError as e:
            response = self._response(error_answer(e))
            # What is left of the body is not a next request.
            response.force_close()
            return response
        try:
            answer = await self._dispatcher.answer(body)
        finally:
            self._bodies.give_back(held)
        return await self._stream(request, answer) if isinstance(answer, Streamed) else self._response(answer)

    async def _stream(self, request: web.BaseRequest, answer: Streamed) -> web.StreamResponse:
        response = web.StreamResponse(headers=self._cbor)
        response.content_length = answer.size
        left = answer.size
        try:
            await response.prepare(request)
            async for piece in answer.pieces:
                left -= len(piece)
                await response.write(piece)
            if left:
                raise Internal("The answer is not as long as announced")
            await response.write_eof()
        except SeedError as e:
            # The status is out: all that can still be told is that the answer is not whole.
            log.error("answer broken off", error=e.message)
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:  # the client has left
            response.force_close()
        finally:
            await answer.close()
        return response

    def _response(self, answer: Answer) -> web.Response:
        headers = self._cbor
        if answer.retry_after_s:
            headers = CIMultiDict(headers)
            headers[hdrs.RETRY_AFTER] = str(answer.retry_after_s)
        return web.Response(status=answer.status, body=answer.body, headers=headers)
