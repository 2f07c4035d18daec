"""Delegated signers: an account lets another key sign its actions (envelope.md, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from libs import wire
from libs.audit import Actor
from libs.errors import Forbidden, Invalid, NotFound
from services.secrets.domain.secrets import Clock
from services.secrets.domain.text import storable

AGENT: Final = "AGENT"
SIGNING_ROLES: Final = ("OWNER", AGENT)
"""Roles that let a key sign any action of the account."""
REVOKED: Final = "REVOKED"
"""Role of a pair that an operator took the right from."""

CAPABILITY_BYTES: Final = 64 * 1024
"""A longer capability is refused as `Invalid capability bytes`."""


@dataclass(frozen=True, slots=True)
class Authorization:
    """`signer` may sign for `account`."""

    account: str
    signer: str


@dataclass(frozen=True, slots=True)
class Granted:
    """A stored authorization. Times in Unix milliseconds."""

    account: str
    signer: str
    role: str
    created_at: int
    updated_at: int


class AuthorizationStore(Protocol):
    """The rows of authorizations."""

    async def put(self, by: Actor, account: str, signer: str, capability: bytes, made_ms: float, now_ms: int) -> bool:
        """Insert, or replace role and capability; False for a pair revoked after `made_ms`, when it was granted."""
        ...

    async def revoke(self, by: Actor, account: str, signer: str, now_ms: int) -> bool:
        """Mark as revoked; False when there is none that signs."""
        ...

    async def page(self, account: str, after: tuple[str, str], most: int) -> list[Granted]:
        """Rows after a pair, by account and signer; of all accounts when `account` is empty."""
        ...

    async def may_sign(self, account: str, signer: str) -> bool:
        """Whether a row says so."""
        ...


class Authorizations:
    """Who may sign for whom. The stored answers are never cached."""

    def __init__(self, rows: AuthorizationStore, now: Clock) -> None:
        self._rows, self._now = rows, now

    async def register(self, by: Actor, capability: bytes | None) -> Authorization:
        """Store what a capability grants to the key that signed the envelope.

        Raises Invalid with the first of the nine messages of envelope.md section 4 that applies. A capability that was
        made before the pair was revoked is Forbidden: else whoever has the key would simply register again.
        """
        proof = capability if capability is not None and len(capability) <= CAPABILITY_BYTES else b""
        try:
            granted = wire.verify_capability(proof, wire.principal_from_id(by.signer))
        except wire.EnvelopeError as e:
            raise Invalid(e.message) from None
        made = wire.decode(proof).get("ts")
        made_ms = made if isinstance(made, int | float) else 0
        if not await self._rows.put(by, granted.issuer, granted.delegate, proof, made_ms, int(self._now() * 1000)):
            raise Forbidden("This authorization was revoked")
        return Authorization(granted.issuer, granted.delegate)

    async def revoke(self, by: Actor, account: str, signer: str) -> None:
        """Take a key's right away, from its next request on. Raises NotFound."""
        now_ms = int(self._now() * 1000)
        known = storable(account) and storable(signer) and await self._rows.revoke(by, account, signer, now_ms)
        if not known:
            raise NotFound("There is no such authorization")

    async def page(self, account: str, after: tuple[str, str], most: int) -> list[Granted]:
        """Up to `most` authorizations after a pair; of all accounts when `account` is empty."""
        return await self._rows.page(account, after, most)

    async def may_sign(self, account: str, signer: str) -> bool:
        """Whether `signer` may act for `account`: it is the account's own key, or was authorized."""
        if account == signer:
            return True
        return storable(account) and storable(signer) and await self._rows.may_sign(account, signer)
