"""Signing identities: keys of Hypermedia accounts, kept as secrets whose metadata kind is `hm-account-key`."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from libs import wire
from libs.audit import Actor
from libs.errors import Conflict, Invalid, NotFound
from libs.protocol.limits import SIGNING_IDENTITY_SECRET_PREFIX
from services.secrets.domain.secrets import ACCOUNT_KEY, Clock, Sealer, read_object
from services.secrets.domain.text import label

_IMPORT = "ImportSigningIdentity"
_NAME_CHARS = 16


@dataclass(frozen=True, slots=True)
class StoredIdentity:
    """A secret that holds an account key. `metadata` is DAG-CBOR, times in Unix milliseconds."""

    id: str
    name: str
    metadata: bytes
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Identity:
    """A signing identity without its seed. Empty texts: not known. Times in Unix milliseconds."""

    id: str
    name: str
    account_id: str
    label: str
    icon: str
    server_url: str
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class NewIdentity:
    """An identity to store. `how` it came: imported or created."""

    id: str
    name: str
    sealed: bytes
    metadata: bytes
    now_ms: int
    how: str


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """An idempotency key, and a digest of what was asked for with it."""

    action: str
    id: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Earlier:
    """The digest of the first request with an id, and what it was answered."""

    digest: bytes
    response: bytes


class Outcome(Enum):
    """How storing an identity ended."""

    STORED = "stored"
    REQUEST_KNOWN = "request known"
    NAME_TAKEN = "name taken"


class IdentityStore(Protocol):
    """The rows of identities."""

    async def list(self, account: str) -> list[StoredIdentity]:
        """All, newest first."""
        ...

    async def delete(self, by: Actor, name: str) -> bool:
        """False when there is none of that name."""
        ...

    async def earlier(self, account: str, request: ClientRequest) -> Earlier | None:
        """The first request with this id, if there was one."""
        ...

    async def add(self, by: Actor, new: NewIdentity, request: ClientRequest | None, response: bytes) -> Outcome:
        """Store identity and answer together, or nothing."""
        ...


class Identities:
    """The account's signing identities. `encode` and `decode` are how an answer is kept for a repeated request."""

    def __init__(
        self,
        rows: IdentityStore,
        sealer: Sealer,
        now: Clock,
        encode: Callable[[Identity], bytes],
        decode: Callable[[bytes], Identity],
    ) -> None:
        self._rows, self._sealer, self._now = rows, sealer, now
        self._encode, self._decode = encode, decode

    async def list(self, account: str, granted: frozenset[str] | None = None) -> list[Identity]:
        """All identities, newest first; only those named in `granted` when it is given."""
        stored = await self._rows.list(account)
        return [_identity(row) for row in stored if granted is None or row.name in granted]

    async def import_key(
        self, by: Actor, seed: bytes | None, text: str | None, client_request_id: str | None
    ) -> Identity:
        """Store a key that the client brings, labelled `text`; publishes nothing.

        Raises Invalid for id, seed or label; Conflict when the id was used for another request or the key is stored.
        """
        account, request = by.account, None
        if client_request_id is not None:
            digest = _digest(seed, text)
            request = ClientRequest(_IMPORT, label(client_request_id, "Client request ID"), digest)
            answered = await self._answered(account, request)
            if answered is not None:
                return answered
        if seed is None or len(seed) != wire.SEED_BYTES:
            raise Invalid("Key seed must be exactly 32 bytes")
        shown = None if text is None else label(text, "Signing identity label")
        key_id = wire.Key(seed).id
        name = SIGNING_IDENTITY_SECRET_PREFIX + key_id[:_NAME_CHARS]
        metadata: dict[str, Any] = {"kind": ACCOUNT_KEY, "accountId": key_id, "importedBy": "user"}
        if shown is not None:
            metadata["label"] = shown
        now_ms = int(self._now() * 1000)
        sealed = await self._sealer.seal(account, name, seed, now_ms)
        new = NewIdentity(str(uuid.uuid4()), name, sealed, wire.encode(metadata), now_ms, "imported")
        identity = _identity(StoredIdentity(new.id, name, new.metadata, now_ms, now_ms))
        outcome = await self._rows.add(by, new, request, self._encode(identity))
        if outcome is Outcome.NAME_TAKEN:
            raise Conflict(f"This account key is already on the server ({key_id})")
        if outcome is Outcome.REQUEST_KNOWN and request is not None:
            # Another request with this id was answered while this one was on its way.
            answered = await self._answered(account, request)
            if answered is not None:
                return answered
        return identity

    async def delete(self, by: Actor, name: str) -> str:
        """Delete an identity; returns its name. Raises Invalid, NotFound."""
        name = label(name, "Signing key")
        if not await self._rows.delete(by, name):
            raise NotFound("Signing identity not found")
        return name

    async def _answered(self, account: str, request: ClientRequest) -> Identity | None:
        earlier = await self._rows.earlier(account, request)
        if earlier is None:
            return None
        if earlier.digest != request.digest:
            raise Conflict("Client request ID payload mismatch")
        return self._decode(earlier.response)


def _digest(seed: bytes | None, text: str | None) -> bytes:
    # One way, and of its own kind: the seed is not kept with the request.
    return hashlib.blake2b(wire.encode([seed, text]), digest_size=32, person=b"import-identity").digest()


def _identity(row: StoredIdentity) -> Identity:
    metadata = read_object(row.metadata) or {}

    def known(key: str) -> str:
        value = metadata.get(key)
        return value if isinstance(value, str) else ""

    return Identity(
        id=row.id,
        name=row.name,
        account_id=known("accountId"),
        label=known("label"),
        icon=known("icon"),
        server_url=known("serverUrl"),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
