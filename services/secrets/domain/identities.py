"""Signing identities: keys of Hypermedia accounts, kept as secrets whose metadata kind is `hm-account-key`."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from libs import wire
from libs.audit import Actor
from libs.errors import BadGateway, Conflict, Invalid, NotFound
from libs.hypermedia import Blob, PublishFailed, file_blobs, home_document, ipfs_url, profile
from libs.protocol.limits import SIGNING_IDENTITY_SECRET_PREFIX
from libs.richtext import markdown_to_blocks
from services.secrets.domain.secrets import ACCOUNT_KEY, Clock, Sealer, read_object
from services.secrets.domain.text import label

_IMPORT = "ImportSigningIdentity"
_CREATE = "CreateSigningIdentity"
_NAME_CHARS = 16
_SHOWN_CHARS = 10
ABOUT = "This account is operated by an agent."
"""The home document of an account that was made here."""


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


@dataclass(frozen=True, slots=True)
class KeptKey:
    """An identity with its sealed seed."""

    stored: StoredIdentity
    sealed: bytes


class Publisher(Protocol):
    """The HM server."""

    @property
    def url(self) -> str:
        """Where it is."""
        ...

    async def publish(self, blobs: Sequence[Blob]) -> None:
        """Publish all of them. Raises PublishFailed."""
        ...


class Locks(Protocol):
    """Locks that hold across replicas."""

    def hold(self, name: str, *, acts: bool = False) -> AbstractAsyncContextManager[None]:
        """Hold a lock by its name. `acts`: what is done inside changes something outside, at most once a signature."""
        ...


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

    async def key(self, account: str, name: str) -> KeptKey | None:
        """One of that name."""
        ...

    async def describe(self, by: Actor, name: str, metadata: bytes, now_ms: int) -> StoredIdentity | None:
        """Replace the metadata; None when the identity is gone."""
        ...


class Identities:
    """The account's signing identities. `encode` and `decode` are how an answer is kept for a repeated request."""

    def __init__(
        self,
        rows: IdentityStore,
        sealer: Sealer,
        locks: Locks,
        server: Publisher,
        now: Clock,
        encode: Callable[[Identity], bytes],
        decode: Callable[[bytes], Identity],
    ) -> None:
        self._rows, self._sealer, self._now = rows, sealer, now
        self._locks, self._server = locks, server
        self._encode, self._decode = encode, decode

    async def list(self, account: str, granted: frozenset[str] | None = None) -> list[Identity]:
        """All identities, newest first; only those named in `granted` when it is given."""
        stored = await self._rows.list(account)
        return [_identity(row) for row in stored if granted is None or row.name in granted]

    async def create(self, by: Actor, text: str | None, client_request_id: str | None) -> Identity:
        """Make a key, publish its profile and home document, then store it; nothing is stored when publishing fails.

        Raises Invalid for id or label, Conflict when the id was used for another request, BadGateway.
        """
        if client_request_id is None:
            return await self._create(by, text, None)
        request_id = label(client_request_id, "Client request ID")
        request = ClientRequest(_CREATE, request_id, _digest(_CREATE, text))
        # Of equal requests one publishes: an account that is published and then not kept is nobody's.
        async with self._locks.hold(f"{_CREATE}/{by.account}/{request_id}"):
            return await self._answered(by.account, request) or await self._create(by, text, request)

    async def _create(self, by: Actor, text: str | None, request: ClientRequest | None) -> Identity:
        shown = None if text is None else label(text, "Signing identity label")
        key = wire.Key.generate()
        shown = shown or f"Agent account {key.id[:_SHOWN_CHARS]}"
        now_ms = self._now_ms()
        body = markdown_to_blocks(ABOUT, lambda: secrets.token_urlsafe(6))
        published = [profile(key, shown, now_ms), *home_document(key, shown, body, now_ms)]
        try:
            await self._server.publish(published)
        except PublishFailed as e:
            raise BadGateway(f"Failed to publish agent account to {self._server.url}: {e}") from None
        metadata = {
            "kind": ACCOUNT_KEY,
            "accountId": key.id,
            "label": shown,
            "serverUrl": self._server.url,
            "generatedBy": "seed-agents-server",
        }
        return await self._store(by, key, metadata, request, "created")

    async def update(self, by: Actor, name: str, text: str, icon: bytes | None) -> Identity:
        """Publish a new label, and an icon when one is given, then keep both.

        Raises Invalid, NotFound, BadGateway; the stored identity is then as it was.
        """
        name = label(name, "Signing key")
        shown = label(text, "Signing identity label")
        async with self._locks.hold(f"identity/{by.account}/{name}", acts=True):
            kept = await self._rows.key(by.account, name)
            if kept is None:
                raise NotFound("Signing identity not found")
            metadata = read_object(kept.stored.metadata) or {}
            seed = await self._sealer.unseal(by.account, name, kept.sealed, self._now_ms())
            if len(seed) != wire.SEED_BYTES:
                raise Invalid("Key seed must be exactly 32 bytes")
            key = wire.Key(seed)
            url = metadata.get("icon") if icon is None else await self._publish_icon(icon)
            avatar = url if isinstance(url, str) else ""
            try:
                await self._server.publish([profile(key, shown, self._now_ms(), avatar=avatar)])
            except PublishFailed as e:
                raise BadGateway(f"Failed to publish agent account profile to {self._server.url}: {e}") from None
            metadata |= {"accountId": key.id, "label": shown, "serverUrl": self._server.url}
            if avatar:
                metadata["icon"] = avatar
            stored = await self._rows.describe(by, name, wire.encode(metadata), self._now_ms())
        if stored is None:
            raise NotFound("Signing identity not found")
        return _identity(stored)

    async def _publish_icon(self, icon: bytes) -> str:
        if not icon:
            raise Invalid("Signing identity icon is required")
        blocks = file_blobs(icon)
        try:
            await self._server.publish(blocks)
        except PublishFailed as e:
            raise BadGateway(f"Failed to publish agent account icon to {self._server.url}: {e}") from None
        return ipfs_url(blocks[-1])

    async def import_key(
        self, by: Actor, seed: bytes | None, text: str | None, client_request_id: str | None
    ) -> Identity:
        """Store a key that the client brings, labelled `text`; publishes nothing.

        Raises Invalid for id, seed or label; Conflict when the id was used for another request or the key is stored.
        """
        request = None
        if client_request_id is not None:
            digest = _digest(_IMPORT, seed, text)
            request = ClientRequest(_IMPORT, label(client_request_id, "Client request ID"), digest)
            answered = await self._answered(by.account, request)
            if answered is not None:
                return answered
        if seed is None or len(seed) != wire.SEED_BYTES:
            raise Invalid("Key seed must be exactly 32 bytes")
        shown = None if text is None else label(text, "Signing identity label")
        key = wire.Key(seed)
        metadata: dict[str, Any] = {"kind": ACCOUNT_KEY, "accountId": key.id, "importedBy": "user"}
        if shown is not None:
            metadata["label"] = shown
        return await self._store(by, key, metadata, request, "imported")

    async def _store(
        self, by: Actor, key: wire.Key, metadata: dict[str, Any], request: ClientRequest | None, how: str
    ) -> Identity:
        name = SIGNING_IDENTITY_SECRET_PREFIX + key.id[:_NAME_CHARS]
        now_ms = self._now_ms()
        sealed = await self._sealer.seal(by.account, name, key.seed, now_ms)
        new = NewIdentity(str(uuid.uuid4()), name, sealed, wire.encode(metadata), now_ms, how)
        identity = _identity(StoredIdentity(new.id, name, new.metadata, now_ms, now_ms))
        outcome = await self._rows.add(by, new, request, self._encode(identity))
        if outcome is Outcome.NAME_TAKEN:
            raise Conflict(f"This account key is already on the server ({key.id})")
        if outcome is Outcome.REQUEST_KNOWN and request is not None:
            # Another request with this id was answered while this one was on its way.
            answered = await self._answered(by.account, request)
            if answered is not None:
                return answered
        return identity

    async def delete(self, by: Actor, name: str) -> str:
        """Delete an identity; returns its name. Raises Invalid, NotFound."""
        name = label(name, "Signing key")
        if not await self._rows.delete(by, name):
            raise NotFound("Signing identity not found")
        return name

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    async def _answered(self, account: str, request: ClientRequest) -> Identity | None:
        earlier = await self._rows.earlier(account, request)
        if earlier is None:
            return None
        if earlier.digest != request.digest:
            raise Conflict("Client request ID payload mismatch")
        return self._decode(earlier.response)


def _digest(action: str, *asked: bytes | str | None) -> bytes:
    # One way, and of its own kind: the seed is not kept with the request.
    person = b"import-identity" if action == _IMPORT else b"create-identity"
    return hashlib.blake2b(wire.encode(list(asked)), digest_size=32, person=person).digest()


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
