"""From a request body to its answer: verify, find the one handler, pass the replay window, encode."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from libs import signatures, telemetry
from libs.errors import Internal, Invalid, SeedError
from libs.protocol import ACTIONS, MUTATING, SOCKET_ONLY, Error, encode_response
from libs.telemetry.traces import Span
from libs.wire import Envelope
from services.edge import metrics
from services.edge.api.call import Call, Handler, Streamed, StreamHandler
from services.edge.api.verify import Verifier
from services.edge.domain.rates import Rates
from services.edge.domain.replay import Answer, ReplayWindow

log = telemetry.get_logger("actions")

_UNNAMED = "-"
_NAME_CHARS = 256


def error_answer(error: SeedError) -> Answer:
    """The answer to a refused request."""
    body = encode_response(Error(message=error.message, code=error.code or UNSET))
    retry_after = 0 if error.retry_after_s is None else max(1, math.ceil(error.retry_after_s))
    return Answer(error.status, body, retry_after)


class Dispatcher:
    """Answers action requests with the handlers of all areas. `streams` serve reads whose answers are not held."""

    def __init__(
        self,
        verifier: Verifier,
        window: ReplayWindow,
        areas: Iterable[Mapping[str, Handler]],
        streams: Mapping[str, StreamHandler],
        rates: Rates,
    ) -> None:
        self._verifier, self._window, self._streams, self._rates = verifier, window, streams, rates
        self._handlers: dict[str, Handler] = {}
        for area in areas:
            self._handlers.update(area)
        self._counters: dict[tuple[str, int], Any] = {}

    async def answer(self, body: bytes) -> Answer | Streamed:
        """The answer to a request body. Never raises a SeedError; what else is raised is a fault of ours."""
        started = time.perf_counter()
        telemetry.new_trace()
        with telemetry.span("action", "server") as span:
            name, answer = await self._answer(body, span)
            span.set(action=name, status=answer.status)
        self._count(name, answer.status)
        metrics.ACTION_SECONDS.observe(time.perf_counter() - started)
        return answer

    async def _answer(self, body: bytes, span: Span) -> tuple[str, Answer | Streamed]:
        name = _UNNAMED
        try:
            envelope = await self._verifier.verify(body)
            self._rates.account(envelope.account)
            name = envelope.name if envelope.name in ACTIONS else _UNNAMED
            span.name(f"action {name}")
            answer = await self._dispatch(envelope)
        except SeedError as e:
            answer = error_answer(e)
        except Exception as e:  # a fault of ours: logged here once, masked for the caller
            log.error("action failed", action=name, error=type(e).__name__, exc_info=e)
            answer = error_answer(Internal("Internal server error"))
        return name, answer

    async def _dispatch(self, envelope: Envelope) -> Answer | Streamed:
        name = envelope.name
        if (stream := self._streams.get(name)) is not None:
            return await stream(Call(envelope))
        handler = self._handlers.get(name)
        if handler is None:
            if name in SOCKET_ONLY:
                raise Invalid(f"{name} is only supported over WebSocket")
            if name in ACTIONS:
                raise Invalid(f"This server does not serve {name} yet")
            raise Invalid(f"Unsupported action: {name[:_NAME_CHARS]}")
        if name not in MUTATING:
            return await _run(handler, Call(envelope))
        ts = float(envelope.ts)
        call = Call(envelope, signatures.header(envelope.sig, self._window.refused_from(ts)))
        return await self._window.run(envelope.sig, ts, lambda: _run(handler, call))

    def _count(self, name: str, status: int) -> None:
        counter = self._counters.get((name, status))
        if counter is None:
            counter = self._counters[name, status] = metrics.ACTIONS.labels(name, str(status))
        counter.inc()


async def _run(handler: Handler, call: Call) -> Answer:
    # Refusals are answers like others: the replay window remembers them too.
    try:
        return Answer(200, encode_response(await handler(call)))
    except SeedError as e:
        return error_answer(e)
