"""Deliveries to webhook triggers (triggers.md, section 7): not signed, known by a secret."""

from __future__ import annotations

import math

import msgspec
from aiohttp import hdrs, web
from seed.triggers.v1 import triggers_pb2 as pb

from libs import telemetry
from libs.errors import Internal, NotFound, SeedError
from services.edge.api.body import Bodies, UnsupportedMedia
from services.edge.domain.rates import Rates
from services.edge.upstream import Peers

log = telemetry.get_logger("webhooks")

PATH = "/agents/api/webhooks/"
_SECONDS = 15.0
_BEARER = "bearer "
_JSON = {hdrs.CONTENT_TYPE: "application/json", hdrs.CACHE_CONTROL: "no-store"}


class Webhooks:
    """Answers `POST /agents/api/webhooks/<trigger>[/<secret>]`. `limit` is the most bytes of a delivery."""

    def __init__(self, peers: Peers, bodies: Bodies, rates: Rates, *, limit: int) -> None:
        self._peer, self._triggers = peers.triggers, peers.triggers_stub
        self._bodies, self._rates, self._limit = bodies, rates, limit

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Take one delivery: 202 once it is kept."""
        telemetry.new_trace()
        try:
            self._rates.address(request.remote or "")
            trigger_id, secret = _named(request)
            _check_media(request)
            duplicate = await self._deliver(request, trigger_id, secret)
        except SeedError as e:
            return _refusal(e)
        except Exception as e:  # a fault of ours: logged here once, masked for the caller
            log.error("delivery failed", error=type(e).__name__, exc_info=e)
            return _refusal(Internal("Internal server error"))
        return _answer(202, {"accepted": True, "duplicate": duplicate})

    async def _deliver(self, request: web.BaseRequest, trigger_id: str, secret: str) -> bool:
        body, held = await self._bodies.read(request, limit=self._limit)
        try:
            delivery = pb.DeliverWebhookRequest(
                trigger_id=trigger_id,
                secret=secret,
                idempotency_key=request.headers.get("Idempotency-Key", ""),
                body=body,
            )
            r = await self._peer.call(self._triggers.DeliverWebhook, delivery, timeout_s=_SECONDS)
            return r.duplicate
        finally:
            self._bodies.give_back(held)


def _named(request: web.BaseRequest) -> tuple[str, str]:
    trigger_id, slash, secret = request.path.removeprefix(PATH).partition("/")
    if not slash:
        given = request.headers.get(hdrs.AUTHORIZATION, "")
        secret = given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else ""
    if not trigger_id or not secret or "/" in secret:
        raise NotFound("Webhook not found")
    return trigger_id, secret


def _check_media(request: web.BaseRequest) -> None:
    kind = request.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMedia("Content-Type must be application/json")
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower() not in ("", "identity"):
        raise UnsupportedMedia("Content-Encoding is not supported")


def _refusal(error: SeedError) -> web.Response:
    response = _answer(error.status, {"error": error.message})
    if error.retry_after_s is not None:
        response.headers[hdrs.RETRY_AFTER] = str(max(1, math.ceil(error.retry_after_s)))
    # What is left of the body is not a next request.
    response.force_close()
    return response


def _answer(status: int, told: dict[str, object]) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(told), headers=_JSON)
