"""Envelope encryption: the ring wraps one random data key an account, the data key seals the account's values."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass

from libs import wire
from services.secrets.domain.keyring import Ring
from services.secrets.domain.sealing import KEY_BYTES, seal, unseal

SECRET = "secret"
"""Kind of place of an account's secrets."""


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """An account's data key as it is stored: wrapped with the ring's key `key_id`."""

    key_id: str
    wrapped: bytes


class Vault:
    """Seals and opens values. Keeps the unwrapped data keys of the `cached` last used accounts."""

    def __init__(self, ring: Ring, cached: int) -> None:
        self._ring, self._cached = ring, cached
        self._open: OrderedDict[tuple[str, WrappedKey], bytes] = OrderedDict()

    def new_key(self, account: str) -> WrappedKey:
        """A fresh data key for an account, wrapped with the primary key."""
        return self._wrapped(account, os.urandom(KEY_BYTES))

    @property
    def primary(self) -> str:
        """Id of the ring's key that wraps."""
        return self._ring.primary

    async def rewrap(self, account: str, key: WrappedKey) -> WrappedKey:
        """The same data key wrapped with the primary key. Raises CannotOpen, UnknownKey."""
        data_key = unseal(await self._ring.find(key.key_id), key.wrapped, _key_place(account, key.key_id))
        return self._wrapped(account, data_key)

    async def seal(self, account: str, name: str, value: bytes, key: WrappedKey, kind: str = SECRET) -> bytes:
        """A value sealed for its place: kind, account and name. Raises CannotOpen, UnknownKey."""
        return seal(await self._data_key(account, key), value, _value_place(kind, account, name))

    async def unseal(self, account: str, name: str, box: bytes, key: WrappedKey, kind: str = SECRET) -> bytes:
        """The value of a box in its place. Raises CannotOpen, UnknownKey."""
        return unseal(await self._data_key(account, key), box, _value_place(kind, account, name))

    async def _data_key(self, account: str, key: WrappedKey) -> bytes:
        # The wrapped bytes are part of the cache's key, so a data key that is replaced is never confused with the old.
        at = (account, key)
        found = self._open.get(at)
        if found is None:
            found = unseal(await self._ring.find(key.key_id), key.wrapped, _key_place(account, key.key_id))
            self._open[at] = found
            if len(self._open) > self._cached:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(at)
        return found

    def _wrapped(self, account: str, data_key: bytes) -> WrappedKey:
        key_id = self._ring.primary
        return WrappedKey(key_id, seal(self._ring.key(key_id), data_key, _key_place(account, key_id)))


def _key_place(account: str, key_id: str) -> bytes:
    return wire.encode(["data-key", account, key_id])


def _value_place(kind: str, account: str, name: str) -> bytes:
    return wire.encode([kind, account, name])
