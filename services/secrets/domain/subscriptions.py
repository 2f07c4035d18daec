"""The tokens of a sign-in, fresh whenever they are asked for, however many ask at once.

A refresh token is often good for one use: of all replicas one refreshes, the others read what it stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from libs import telemetry, wire
from libs.errors import BadGateway, Invalid, Unauthenticated, Unavailable
from services.secrets.domain.identities import Locks
from services.secrets.domain.oauth import Credentials, OAuthClient, OAuthFailure, TokenEndpoint, refresh
from services.secrets.domain.secrets import Clock, Metadata, Sealer, read_metadata, read_object

log = telemetry.get_logger("subscriptions")

REFRESH_AHEAD_MS: Final = 300_000
"""Tokens that last no longer than this are refreshed before they are handed out."""
_STORE_TRIES: Final = 5
_STORE_PAUSE_S: Final = 0.5

EXPIRED: Final = (
    "Your OpenAI subscription sign-in has expired or was revoked. Open model provider settings and sign in with "
    "ChatGPT again."
)


@dataclass(frozen=True, slots=True)
class KeptTokens:
    """A stored sign-in: the sealed tokens and the secret's metadata (DAG-CBOR)."""

    sealed: bytes
    metadata: bytes | None
    needs_reauth: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """An access token that the provider did not take: its SHA-256, and whether it was the last one worth a try."""

    digest: bytes
    last: bool

    def names(self, tokens: Credentials) -> bool:
        """Are these the tokens?"""
        return hmac.compare_digest(self.digest, hashlib.sha256(tokens.access.encode()).digest())


class TokenStore(Protocol):
    """The rows of secrets that hold tokens."""

    async def tokens(self, account: str, name: str) -> KeptTokens | None:
        """What is stored under a name."""
        ...

    async def refreshed(
        self, account: str, name: str, old: bytes, sealed: bytes, metadata: Metadata, now_ms: int
    ) -> bool:
        """Replace the sealed value `old`; False when something else is stored by now."""
        ...

    async def needs_reauth(self, account: str, name: str, old: bytes, metadata: Metadata, now_ms: int) -> bool:
        """Mark the sealed value `old` as worthless and tell the account; False when something else is stored by now."""
        ...


_Place = tuple[str, str, Refused | None]


class Subscriptions:
    """Hands out tokens. A refresh that has begun ends even when whoever asked has left: settle() waits for all."""

    def __init__(
        self,
        rows: TokenStore,
        sealer: Sealer,
        locks: Locks,
        endpoint: TokenEndpoint,
        clients: Mapping[str, OAuthClient],
        now: Clock,
    ) -> None:
        self._rows, self._sealer, self._locks = rows, sealer, locks
        self._endpoint, self._clients, self._now = endpoint, clients, now
        self._running: dict[_Place, asyncio.Task[Credentials]] = {}

    async def credentials(
        self, account: str, provider_type: str, name: str, refused: Refused | None = None
    ) -> Credentials:
        """Tokens of the sign-in stored under `name` that last for a while, and are not the refused ones.

        Refused tokens that are still the stored ones are refreshed; the last ones end the sign-in. Raises Invalid
        (there is none), Unauthenticated (a new sign-in is needed), BadGateway (they have expired, and the provider
        cannot be asked for others now).
        """
        kept = await self._kept(account, name)
        tokens = await self._open(account, name, kept)
        if refused is not None and refused.last and refused.names(tokens):
            raise await self._ended_by_provider(account, name, kept)
        if self._usable(tokens, refused):
            return tokens
        at = (account, name, refused)
        running = self._running.get(at)
        if running is None:
            running = asyncio.create_task(self._refresh(account, provider_type, name, refused), name="refresh")
            self._running[at] = running
            running.add_done_callback(lambda task: self._ended(at, task))
        return await asyncio.shield(running)

    async def settle(self) -> None:
        """Wait for the refreshes that have begun. For the end of the process, after its last call."""
        if self._running:
            await asyncio.wait(self._running.values())

    def _ended(self, at: _Place, task: asyncio.Task[Credentials]) -> None:
        del self._running[at]
        # Whoever waited has the error; when nobody waits any more it is no news either.
        if not task.cancelled():
            task.exception()

    async def _refresh(self, account: str, provider_type: str, name: str, refused: Refused | None) -> Credentials:
        async with self._locks.hold(f"tokens/{account}/{name}"):
            kept = await self._kept(account, name)
            tokens = await self._open(account, name, kept)
            if self._usable(tokens, refused):
                return tokens
            client = self._clients.get(provider_type)
            if client is None:
                raise Invalid(f"Provider type does not support subscription auth: {provider_type}")
            try:
                new = await refresh(self._endpoint, client, tokens, self._now_ms())
            except OAuthFailure as e:
                if e.refused:
                    raise await self._ended_by_provider(account, name, kept) from None
                log.warning("tokens were not refreshed", error=e.cause)
                if tokens.expires > self._now_ms() and not (refused and refused.names(tokens)):
                    return tokens
                raise BadGateway(f"The OpenAI sign-in could not be refreshed: {e.cause}") from None
            await self._keep(account, name, kept, new)
            return new

    async def _ended_by_provider(self, account: str, name: str, kept: KeptTokens) -> Unauthenticated:
        """Mark what is stored as worthless; the error for whoever asked."""
        described = wire.encode({**_read(kept), "needsReauth": True})
        await self._rows.needs_reauth(account, name, kept.sealed, read_metadata(described), self._now_ms())
        return Unauthenticated(EXPIRED)

    async def _keep(self, account: str, name: str, kept: KeptTokens, new: Credentials) -> None:
        described = {key: value for key, value in _read(kept).items() if key != "needsReauth"}
        metadata = read_metadata(wire.encode(described) if described else None)
        sealed = await self._sealer.seal(account, name, new.encode(), self._now_ms())
        for left in reversed(range(_STORE_TRIES)):
            try:
                await self._rows.refreshed(account, name, kept.sealed, sealed, metadata, self._now_ms())
                return
            except Unavailable:
                # The old refresh token is spent: what is lost now means a new sign-in for the user.
                if not left:
                    log.error("refreshed tokens could not be stored")
                    return
                await asyncio.sleep(_STORE_PAUSE_S)

    async def _kept(self, account: str, name: str) -> KeptTokens:
        kept = await self._rows.tokens(account, name)
        if kept is None:
            raise Invalid("Required secret is not configured")
        if kept.needs_reauth:
            raise Unauthenticated(EXPIRED)
        return kept

    async def _open(self, account: str, name: str, kept: KeptTokens) -> Credentials:
        value = await self._sealer.unseal(account, name, kept.sealed, self._now_ms())
        tokens = Credentials.decode(value)
        if tokens is None:
            raise Invalid("The stored sign-in is not usable, sign in again")
        return tokens

    def _usable(self, tokens: Credentials, refused: Refused | None) -> bool:
        fresh = tokens.expires - self._now_ms() > REFRESH_AHEAD_MS
        return fresh and not (refused is not None and refused.names(tokens))

    def _now_ms(self) -> int:
        return int(self._now() * 1000)


def _read(kept: KeptTokens) -> dict[str, object]:
    return (read_object(kept.metadata) or {}) if kept.metadata else {}
