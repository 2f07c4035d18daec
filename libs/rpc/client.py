"""Calling another service."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc

from libs import telemetry
from libs.errors import Unavailable
from libs.rpc.errors import METADATA_BYTES, away, from_rpc_error
from libs.rpc.server import MESSAGE_BYTES
from libs.rpc.tokens import TokenSigner

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_retries", 0),
]

_END: Any = grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue]

CALL_SECONDS = 15.0
"""Deadline of a call that names none."""


class Peer:
    """A channel to one service: `stub(Class)` gives the generated stub, through which a call is made.

    `call` for a message each way, `send` for a stream of requests, `stream` for a stream of answers.
    """

    def __init__(self, service: str, address: str, tokens: TokenSigner) -> None:
        self._service, self._tokens = service, tokens
        target = address if "://" in address or address.startswith("unix:") else f"dns:///{address}"
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)

    def stub(self, stub_class: Any) -> Any:
        """The generated stub on this channel."""
        return stub_class(self._channel)

    async def call(
        self,
        method: Any,
        request: Any,
        *,
        account: str = "",
        signer: str = "",
        timeout_s: float = CALL_SECONDS,
        retry: bool = False,
        signature: str = "",
    ) -> Any:
        """Call `method` (an attribute of a stub) for `account` and `signer`.

        `signature` (libs.signatures.header) is given when a signed action that changes something causes the call.

        `retry` says that the call is idempotent: it is tried again while the service is away, until `timeout_s`.
        Raises the SeedError the service raised; Unavailable when it cannot be reached in time or this peer is closed,
        TooLarge when request or answer exceed MESSAGE_BYTES.
        """

        async def attempt(**options: Any) -> Any:
            return await method(request, **options)

        return await self._tried(method, attempt, account, signer, timeout_s, retry, signature)

    async def send(
        self,
        method: Any,
        requests: Iterable[Any] | AsyncIterable[Any],
        *,
        account: str = "",
        signer: str = "",
        timeout_s: float = CALL_SECONDS,
        signature: str = "",
    ) -> Any:
        """Call a method that takes a stream of requests, once. The next request is taken when there is room for it.

        The stream is cancelled when the service refuses it or this call is cancelled. Raises as `call` does.
        """

        async def attempt(**options: Any) -> Any:
            running = method(requests, **options)
            try:
                return await running
            finally:
                running.cancel()

        return await self._tried(method, attempt, account, signer, timeout_s, False, signature)

    @asynccontextmanager
    async def stream(
        self,
        method: Any,
        request: Any,
        *,
        account: str = "",
        signer: str = "",
        timeout_s: float = CALL_SECONDS,
        retry: bool = False,
    ) -> AsyncIterator[AsyncIterator[Any]]:
        """Call a method that answers with a stream; gives its answers, and cancels it on leaving.

        Entering waits for the first answer: until then `retry` and what is raised are as in `call`. `timeout_s` is the
        deadline of the whole stream. A stream that breaks later raises the same errors from its iteration.
        """

        async def attempt(**options: Any) -> tuple[Any, Any]:
            running = method(request, **options)
            try:
                return running, await running.read()
            except BaseException:
                running.cancel()
                raise

        running, first = await self._tried(method, attempt, account, signer, timeout_s, retry)
        try:
            yield self._answers(running, first)
        finally:
            # Left early, it would stay open until its deadline.
            running.cancel()

    async def _answers(self, running: Any, answer: Any) -> AsyncIterator[Any]:
        while answer is not _END:
            yield answer
            with self._public_errors():
                answer = await running.read()

    async def _tried(
        self,
        method: Any,
        attempt: Callable[..., Awaitable[Any]],
        account: str,
        signer: str,
        timeout_s: float,
        retry: bool,
        signature: str = "",
    ) -> Any:
        with telemetry.span(_name_of(method) or self._service, "client", peer=self._service):
            return await self._try_until(
                asyncio.get_running_loop().time() + timeout_s, attempt, account, signer, retry, signature
            )

    async def _try_until(
        self,
        end: float,
        attempt: Callable[..., Awaitable[Any]],
        account: str,
        signer: str,
        retry: bool,
        signature: str,
    ) -> Any:
        loop = asyncio.get_running_loop()
        trace = telemetry.traceparent()
        pause = 0.05
        while True:
            # Made for each try: a call may be tried for longer than a token lives.
            metadata = [("authorization", self._tokens.token(self._service, account, signer))]
            if trace:
                metadata.append(("traceparent", trace))
            if signature:
                metadata.append(("x-signature", signature))
            try:
                with self._public_errors():
                    return await attempt(metadata=metadata, timeout=max(0.001, end - loop.time()))
            except Unavailable:
                if not retry or loop.time() + pause >= end:
                    raise
            await asyncio.sleep(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, 1.0)

    @contextmanager
    def _public_errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as e:
            raise from_rpc_error(e, self._service) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise away(self._service) from None  # nobody canceled us: the channel was closed meanwhile
        except grpc.aio.UsageError:
            raise away(self._service) from None

    async def close(self) -> None:
        """Close the channel; running calls fail with Unavailable."""
        await self._channel.close()


def _name_of(method: Any) -> str:
    """`Service.Method` of an attribute of a stub, as the server calls it."""
    path: bytes | str = getattr(method, "_method", "")
    service, _, name = (path.decode() if isinstance(path, bytes) else path).rpartition("/")
    return f"{service.rpartition('.')[2]}.{name}" if name else ""
