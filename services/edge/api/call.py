"""One verified action on its way to the owner, and reading its fields leniently.

What the client sent with the wrong type goes on as an empty text: the owner's rule for missing values covers it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from libs.protocol import Wire, json_bytes, optional_text_argument, text_argument
from libs.protocol.limits import clamped_limit
from libs.rpc import Peer
from libs.wire import Envelope, encode
from services.edge.domain.seq import after_seq

READ_SECONDS = 10.0
STREAM_SECONDS = 600.0
"""What a client may take to receive an answer that is streamed."""


class Call:
    """A verified action. `signature` (libs.signatures.header) when it may change something."""

    __slots__ = ("account", "action", "envelope", "protocol", "signature", "signer")

    def __init__(self, envelope: Envelope, signature: str = "") -> None:
        self.signature = signature
        self.protocol = envelope.protocol
        self.envelope = envelope
        self.action: dict[str, Any] = envelope.action
        self.account = envelope.account
        self.signer = envelope.signer

    def text(self, key: str) -> str:
        """The text under `key`; empty when absent or of another type."""
        return text_argument(self.action, key)

    def optional_text(self, key: str) -> str | None:
        """None when absent, empty when of another type."""
        return optional_text_argument(self.action, key)

    def cbor(self, key: str) -> bytes | None:
        """DAG-CBOR of the value under `key`; None when absent."""
        return encode(self.action[key]) if key in self.action else None

    def json(self, key: str) -> bytes:
        """JSON of the value under `key`; empty when absent."""
        return json_bytes(self.action[key]) if key in self.action else b""

    def binary(self, key: str) -> bytes | None:
        """The bytes under `key`; None when absent or of another type."""
        value = self.action.get(key)
        return value if isinstance(value, bytes) else None

    def limit(self) -> int:
        """`limit` of a listing, clamped."""
        return clamped_limit(self.action.get("limit"))

    def after_seq(self) -> int | None:
        """`afterSeq`: None when absent, NOT_A_SEQ when it is none."""
        return after_seq(self.action["afterSeq"]) if "afterSeq" in self.action else None

    async def read(self, peer: Peer, method: Any, request: Any) -> Any:
        """Call something that changes nothing: it is tried again while the service is away."""
        return await peer.call(
            method, request, account=self.account, signer=self.signer, timeout_s=READ_SECONDS, retry=True
        )

    async def write(self, peer: Peer, method: Any, request: Any, *, timeout_s: float = 30.0) -> Any:
        """Call something that changes something, once: its owner records the signature with the effect."""
        return await peer.call(
            method,
            request,
            account=self.account,
            signer=self.signer,
            timeout_s=timeout_s,
            signature=self.signature,
        )

    async def send(self, peer: Peer, method: Any, requests: Iterable[Any], *, timeout_s: float) -> Any:
        """Call something that changes something with a stream of requests, once, as `write` does."""
        return await peer.send(
            method,
            requests,
            account=self.account,
            signer=self.signer,
            timeout_s=timeout_s,
            signature=self.signature,
        )

    def stream(self, peer: Peer, method: Any, request: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Call something that changes nothing and answers with a stream."""
        return peer.stream(
            method, request, account=self.account, signer=self.signer, timeout_s=STREAM_SECONDS, retry=True
        )


@dataclass(frozen=True, slots=True)
class Streamed:
    """An encoded answer that is not held: `size` bytes, in `pieces` as they come. `close` it in any case."""

    size: int
    pieces: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]
    status: ClassVar[int] = 200


Handler = Callable[[Call], Awaitable[Wire]]
"""Serves one action: the answer's struct, or a SeedError raised."""

StreamHandler = Callable[[Call], Awaitable[Streamed]]
"""Serves one action that changes nothing: the answer as it comes, or a SeedError raised."""
