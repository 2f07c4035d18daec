"""Sockets of delegated signers: they end with the signer's right."""

from __future__ import annotations

import asyncio
from typing import Protocol

from seed.events.v1 import events_pb2
from seed.secrets.v1 import secrets_pb2

from libs.errors import SeedError
from services.edge.upstream import Peers

_CALL_S = 5.0
_CHECK_EVERY_S = 60.0
_AT_ONCE = 16

Pair = tuple[str, str]
"""An account, and a key that signs for it."""


class SignedSocket(Protocol):
    """What is needed of a socket."""

    def close(self, code: int, reason: str, cause: str) -> None:
        """Begin to close it."""
        ...


class Signers:
    """Which sockets were subscribed by keys other than their account's. run() must run beside it.

    A revocation is news on the bus; as any news it may be lost, so all are asked about when the bus is back, and once a
    minute.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._by_pair: dict[Pair, set[SignedSocket]] = {}
        self._pairs: dict[SignedSocket, set[Pair]] = {}

    def bind(self, socket: SignedSocket, account: str, signer: str) -> None:
        """A frame of this signer was accepted on a socket."""
        if signer != account:
            self._by_pair.setdefault((account, signer), set()).add(socket)
            self._pairs.setdefault(socket, set()).add((account, signer))

    def exit(self, socket: SignedSocket) -> None:
        """A socket is closed."""
        for pair in self._pairs.pop(socket, ()):
            sockets = self._by_pair.get(pair, set())
            sockets.discard(socket)
            if not sockets:
                self._by_pair.pop(pair, None)

    def on_message(self, _subject: str, body: bytes) -> None:
        """Handle a SignerRevoked message."""
        revoked = events_pb2.SignerRevoked.FromString(body)
        self._cut((revoked.account, revoked.signer))

    async def recheck(self) -> None:
        """Ask about every signer: news may have been missed."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def check(pair: Pair) -> None:
            async with slots:
                if not await self._may_sign(pair):
                    self._cut(pair)

        await asyncio.gather(*(check(pair) for pair in list(self._by_pair)))

    async def run(self) -> None:
        """Ask about every signer now and then; never returns."""
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            await self.recheck()

    async def _may_sign(self, pair: Pair) -> bool:
        request = secrets_pb2.CheckSignerRequest(account_id=pair[0], signer_id=pair[1])
        try:
            r = await self._peers.secrets.call(
                self._peers.authorizations_stub.CheckSigner, request, timeout_s=_CALL_S, retry=True
            )
        except SeedError:
            return True  # nobody can say now; the next round asks again
        return r.authorized

    def _cut(self, pair: Pair) -> None:
        for socket in self._by_pair.pop(pair, set()):
            socket.close(1008, "Signer is not authorized for account", "signer")
