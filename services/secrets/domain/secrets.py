"""Secret values: their rules and how they are kept."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from libs import wire
from libs.audit import Actor
from libs.errors import Invalid
from libs.protocol.limits import METADATA_BYTES, SECRET_VALUE_BYTES
from services.secrets.domain.text import label
from services.secrets.domain.vault import SECRET, Vault, WrappedKey

ACCOUNT_KEY = "hm-account-key"
"""Metadata `kind` of a secret that holds the key of a Hypermedia account."""

Clock = Callable[[], float]
"""Seconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """A secret's metadata: DAG-CBOR (None without any), and what other rules read off it."""

    encoded: bytes | None
    is_account_key: bool
    needs_reauth: bool


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A secret without its value. Times in Unix milliseconds."""

    id: str
    name: str
    metadata: bytes | None
    created_at: int
    updated_at: int


class SecretStore(Protocol):
    """The rows of secrets."""

    async def put(
        self, new_id: str, by: Actor, name: str, sealed: bytes, metadata: Metadata, now_ms: int
    ) -> StoredSecret:
        """Insert, or replace value and metadata, for the acting account."""
        ...


class DataKeyStore(Protocol):
    """The rows of data keys."""

    async def get_or_add(self, account: str, make: Callable[[str], WrappedKey], now_ms: int) -> WrappedKey:
        """The account's data key, made when there is none."""
        ...


class Sealer:
    """Seals a value with the data key of its account, which is made at the account's first value."""

    def __init__(self, vault: Vault, keys: DataKeyStore) -> None:
        self._vault, self._keys = vault, keys

    async def seal(self, account: str, name: str, value: bytes, now_ms: int, kind: str = SECRET) -> bytes:
        """The value sealed for this kind of place, account and name."""
        key = await self._keys.get_or_add(account, self._vault.new_key, now_ms)
        return await self._vault.seal(account, name, value, key, kind)

    async def unseal(self, account: str, name: str, box: bytes, now_ms: int, kind: str = SECRET) -> bytes:
        """What `seal` sealed. Raises CannotOpen, UnknownKey."""
        key = await self._keys.get_or_add(account, self._vault.new_key, now_ms)
        return await self._vault.unseal(account, name, box, key, kind)


class Secrets:
    """The account's secrets."""

    def __init__(self, rows: SecretStore, sealer: Sealer, now: Clock) -> None:
        self._rows, self._sealer, self._now = rows, sealer, now

    async def set(self, by: Actor, name: str, value: bytes | None, metadata: bytes | None) -> StoredSecret:
        """Store a value under a name; absent metadata clears the old. Raises Invalid, in the documented order."""
        name = label(name, "Secret name")
        if value is None:
            raise Invalid("Secret value is required")
        if len(value) > SECRET_VALUE_BYTES:
            raise Invalid("Secret value is too large")
        read = read_metadata(metadata)
        now_ms = int(self._now() * 1000)
        sealed = await self._sealer.seal(by.account, name, value, now_ms)
        return await self._rows.put(str(uuid.uuid4()), by, name, sealed, read, now_ms)


def read_metadata(encoded: bytes | None) -> Metadata:
    """Check metadata as received. Raises Invalid: `Metadata must be an object`, `Metadata is too large`."""
    if encoded is None:
        return Metadata(None, False, False)
    metadata = read_object(encoded)
    if metadata is None:
        raise Invalid("Metadata must be an object")
    if len(encoded) > METADATA_BYTES:
        raise Invalid("Metadata is too large")
    return Metadata(encoded, metadata.get("kind") == ACCOUNT_KEY, metadata.get("needsReauth") is True)


def read_object(encoded: bytes) -> dict[str, Any] | None:
    """The map that canonical DAG-CBOR encodes; None for any other value."""
    try:
        value = wire.decode(encoded)
    except wire.DecodeError:
        return None
    return value if isinstance(value, dict) else None
