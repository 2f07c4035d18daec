"""Who sends this? The checks of envelope.md section 3 that do not need the owner of the data: 2 to 12."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from seed.secrets.v1 import secrets_pb2

from libs.errors import Invalid, SeedError, TooOld, Unauthenticated
from libs.protocol import MIN_CLIENT_PROTOCOL
from libs.wire import Envelope, EnvelopeError, verify_envelope
from services.edge.upstream import Peers

THREAD_BYTES = 256 * 1024
"""Larger bodies are verified in a thread, so that the loop goes on."""
CHECK_SECONDS = 5.0


class Verifier:
    """Verifies envelopes.

    `now_ms` is the server's clock, `skew_ms` the window either way, `max_depth` of nesting, `min_protocol` the oldest
    client that is served.
    """

    def __init__(
        self,
        peers: Peers,
        *,
        now_ms: Callable[[], float],
        skew_ms: int,
        max_depth: int,
        min_protocol: int = MIN_CLIENT_PROTOCOL,
    ) -> None:
        self._peers, self._now_ms, self._skew_ms, self._max_depth = peers, now_ms, skew_ms, max_depth
        self._min_protocol = min_protocol

    async def verify(self, body: bytes) -> Envelope:
        """The verified envelope in a request body or WebSocket frame.

        Raises Invalid, TooOld or Unauthenticated with the text of the first check that fails; Unavailable when it
        cannot be asked whether the signer may act for the account.
        """
        if len(body) > THREAD_BYTES:
            envelope = await asyncio.to_thread(self._verified, body)
        else:
            envelope = self._verified(body)
        if envelope.signer != envelope.account:
            request = secrets_pb2.CheckSignerRequest(account_id=envelope.account, signer_id=envelope.signer)
            stub = self._peers.authorizations_stub
            r = await self._peers.secrets.call(stub.CheckSigner, request, timeout_s=CHECK_SECONDS, retry=True)
            if not r.authorized:
                raise Unauthenticated("Signer is not authorized for account")
        return envelope

    def _verified(self, body: bytes) -> Envelope:
        try:
            return verify_envelope(
                body,
                now_ms=self._now_ms(),
                skew_ms=self._skew_ms,
                min_protocol=self._min_protocol,
                max_depth=self._max_depth,
            )
        except EnvelopeError as e:
            raise _public(e) from None


def _public(e: EnvelopeError) -> SeedError:
    if e.status == 426:
        return TooOld(e.message)
    return Invalid(e.message) if e.status == 400 else Unauthenticated(e.message)
