"""Calling another service."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import grpc

from libs import telemetry
from libs.errors import SeedError, Unavailable
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

CALL_SECONDS = 15.0
"""Deadline of a call that names none."""


class Peer:
    """A channel to one service. `stub(Class)` gives the generated stub, `call` makes a call through it."""

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
    ) -> Any:
        """Call `method` (an attribute of a stub) for `account` and `signer`.

        `retry` says that the call is idempotent: it is tried again while the service is away, until `timeout_s`.
        Raises the SeedError the service raised; Unavailable when it cannot be reached in time or this peer is closed,
        TooLarge when request or answer exceed MESSAGE_BYTES.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        trace = telemetry.trace_id()
        pause = 0.05
        while True:
            # Made for each try: a call may be tried for longer than a token lives.
            metadata = [("authorization", self._tokens.token(self._service, account, signer))]
            if trace:
                metadata.append(("x-trace", trace))
            try:
                return await method(request, metadata=metadata, timeout=max(0.001, end - loop.time()))
            except grpc.aio.AioRpcError as e:
                error: SeedError = from_rpc_error(e, self._service)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise away(self._service) from None  # nobody canceled us: the channel was closed meanwhile
            except grpc.aio.UsageError:
                raise away(self._service) from None
            if not retry or not isinstance(error, Unavailable) or loop.time() + pause >= end:
                raise error
            await asyncio.sleep(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, 1.0)

    async def close(self) -> None:
        """Close the channel; running calls fail with Unavailable."""
        await self._channel.close()
