"""The gRPC server factory: authentication, errors, metrics, health, reflection, drain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health import aio as aio_health  # pyright: ignore[reportAttributeAccessIssue]
from grpc_reflection.v1alpha import reflection

from libs import signatures, telemetry
from libs.errors import Internal, SeedError, Unauthenticated
from libs.rpc.errors import DETAILS_KEY, INTERNAL_TOKEN, METADATA_BYTES, details_of, status_of, text_of
from libs.rpc.tokens import Caller, TokenVerifier
from libs.signatures import SignedCall

log = telemetry.get_logger("rpc")

MESSAGE_BYTES = 72 * 1024 * 1024
"""Most bytes of one internal message, above the largest body the edge lets in (64 MiB) and what is said around it."""

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    # Connections end after a while so that new pods get their share of the calls.
    ("grpc.max_connection_age_ms", 600_000),
    ("grpc.max_connection_age_grace_ms", 30_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),
]

# By whether requests and responses are streams.
_HANDLERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


_NEVER_ANSWERED = frozenset((401, 403, 500, 502, 503))
_LATE_S = 0.3


async def _answered(answers: AnswerStore, method: str, error: SeedError) -> bytes | None:
    """What the same signature was answered before, for a call that is refused now; None when it never acted.

    What has been done once is often refused the second time: the thing is gone, or its name is taken.
    """
    signed = signatures.current()
    if signed is None or error.status in _NEVER_ANSWERED:
        return None
    try:
        found = await answers.find(signed, method)
        if found is None and signed.repeated:
            # The first has just acted: its answer follows its effect.
            await asyncio.sleep(_LATE_S)
            found = await answers.find(signed, method)
    except SeedError:
        return None
    return found


async def _write_all(answers: AsyncGenerator[Any, None], context: Any) -> None:
    async with aclosing(answers):
        async for answer in answers:
            try:
                await context.write(answer)
            except (grpc.aio.InternalError, grpc.aio.UsageError):
                # The caller is gone; grpc.aio tells the handler by a cancellation or so, whichever is first.
                raise asyncio.CancelledError from None


class AnswerStore(Protocol):
    """What signed calls were answered (libs.store.Answers)."""

    def wants(self, method: str) -> bool:
        """Whether the answers of a method are kept."""
        ...

    def keep(self, call: SignedCall, method: str, answer: bytes) -> None:
        """Keep what a call that acted was answered."""
        ...

    async def find(self, call: SignedCall, method: str) -> bytes | None:
        """What the same signature was answered before."""
        ...

    async def run(self) -> None:
        """Store what is kept, until canceled."""
        ...

    async def close(self) -> None:
        """Store the rest."""
        ...


class RpcServer:
    """A grpc.aio server for one service identity.

    With `answers`, a signed call whose signature has acted before is given what the first was answered, where the call
    itself is refused.

    `add(descriptor, servicer)` registers every method of the proto service that the servicer has; start() binds and
    serves; stop(grace_s) fails health, stops accepting, and waits for running calls.
    """

    def __init__(self, verifier: TokenVerifier, *, host: str, port: int, answers: AnswerStore | None = None) -> None:
        self._verifier, self._host, self._port, self._answers = verifier, host, port, answers
        self._keeping: asyncio.Task[None] | None = None
        self._server = grpc.aio.server(options=_OPTIONS)
        self._names: list[str] = []
        self._health = aio_health.HealthServicer()

    @property
    def port(self) -> int:
        """Port the server listens on; known after start()."""
        return self._port

    def add(self, service: ServiceDescriptor, servicer: object) -> None:
        """Serve `service` with `servicer`: its methods take (request, caller) and return the response message.

        A method whose requests are a stream takes an async iterator of them; one whose responses are a stream is an
        async generator of them, closed when the caller leaves.
        """
        handlers = {}
        for method in service.methods:
            fn: Any = getattr(servicer, method.name, None)
            if fn is None:
                continue
            request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
            handler = _HANDLERS[method.client_streaming, method.server_streaming]
            handlers[method.name] = handler(
                self._wrap(
                    f"{service.name}.{method.name}", fn, response, method.client_streaming, method.server_streaming
                ),
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        self._names.append(service.full_name)

    def _wrap(
        self, name: str, fn: Any, response: Any, takes_stream: bool, gives_stream: bool
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        answers = self._answers if not gives_stream and self._answers and self._answers.wants(name) else None
        ok, failed = telemetry.RPC_SECONDS.labels(name, "ok"), telemetry.RPC_SECONDS.labels(name, "error")
        fault, canceled = telemetry.RPC_SECONDS.labels(name, "fault"), telemetry.RPC_SECONDS.labels(name, "canceled")

        # A stream of requests arrives as the iterator that is passed on.
        async def call(request: Any, context: Any) -> Any:
            started = time.perf_counter()
            try:
                caller = self._caller(context)
                answer: Any = None
                with telemetry.span(name, "server", caller=caller.service):
                    answer = await (_write_all(fn(request, caller), context) if gives_stream else fn(request, caller))
                if answers is not None and (signed := signatures.current()) is not None and signed.recorded:
                    answers.keep(signed, name, answer.SerializeToString())
                ok.observe(time.perf_counter() - started)
                return answer
            except SeedError as e:
                failed.observe(time.perf_counter() - started)
                error = e
                before = await _answered(answers, name, e) if answers is not None else None
                if before is not None:
                    return response.FromString(before)
            except asyncio.CancelledError:  # the caller is gone, or its deadline is over
                canceled.observe(time.perf_counter() - started)
                raise
            except Exception as e:  # a fault of ours: logged here once, masked for the caller
                fault.observe(time.perf_counter() - started)
                log.error("call failed", method=name, error=type(e).__name__, exc_info=e)
                error = Internal("Internal server error")
            if takes_stream:
                # grpc.aio replaces a refusal by INTERNAL while the caller is still writing (grpc/grpc#36066).
                async for _ in request:
                    pass
            context.set_trailing_metadata(((DETAILS_KEY, details_of(error)),))
            await context.abort(status_of(error), text_of(error))

        return call

    def _caller(self, context: Any) -> Caller:
        """Who calls, by the token. Binds the call's trace, and the signature behind it. Raises Unauthenticated."""
        token = signature = ""
        for key, value in context.invocation_metadata():
            if key == "authorization":
                token = value
            elif key == "traceparent":
                telemetry.bind_traceparent(value)
            elif key == "x-signature":
                signature = value
        if not token:
            raise Unauthenticated("Internal token is missing", code=INTERNAL_TOKEN)
        caller = self._verifier.verify(token)
        if signature:
            signatures.bind(signature, caller.account)
        return caller

    async def start(self) -> None:
        """Bind and serve. Raises RuntimeError when the address is taken."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*self._names, HEALTH, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._port = self._server.add_insecure_port(f"{host}:{self._port}")
        await self._server.start()
        if self._answers is not None:
            self._keeping = asyncio.create_task(self._answers.run(), name="answers")
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop in order: fail health, refuse new calls, let running ones end within `grace_s` seconds."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)
        if self._answers is not None and self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
            await self._answers.close()
