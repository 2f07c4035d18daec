"""The key ring: keys that wrap every account's data key. The primary wraps, the others open what they wrapped."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping

from services.secrets.domain.sealing import KEY_BYTES


class KeyRingError(Exception):
    """The text is no key ring; the message says why and holds nothing of the keys."""


class UnknownKey(Exception):
    """Something was wrapped with a key the ring does not have; `key_id` is the missing one."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the key ring has no key {key_id}")
        self.key_id = key_id


class KeyRing:
    """Wrapping keys by id. Its `repr` shows ids only."""

    __slots__ = ("_keys", "primary")

    def __init__(self, primary: str, keys: Mapping[str, bytes]) -> None:
        """Raises KeyRingError when the primary is missing or a key has not 32 bytes."""
        if primary not in keys:
            raise KeyRingError("the key ring's primary is not among its keys")
        for key_id, key in keys.items():
            if not key_id or len(key) != KEY_BYTES:
                raise KeyRingError(f"key {key_id!r} of the key ring has not {KEY_BYTES} bytes")
        self.primary = primary
        self._keys = dict(keys)

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """From `{"primary": id, "keys": {id: base64 of 32 bytes}}`. Raises KeyRingError."""
        try:
            ring = json.loads(text)
        except ValueError:
            raise KeyRingError("the key ring is not JSON") from None
        if not isinstance(ring, dict) or not isinstance(ring.get("keys"), dict):
            raise KeyRingError('the key ring is not of the form {"primary": id, "keys": {id: base64}}')
        keys: dict[str, bytes] = {}
        for key_id, encoded in ring["keys"].items():
            try:
                keys[key_id] = base64.b64decode(encoded, validate=True)
            except (TypeError, ValueError, binascii.Error):
                raise KeyRingError(f"key {key_id!r} of the key ring is not base64") from None
        primary = ring.get("primary")
        return cls(primary if isinstance(primary, str) else "", keys)

    def key(self, key_id: str) -> bytes:
        """The key with this id. Raises UnknownKey."""
        try:
            return self._keys[key_id]
        except KeyError:
            raise UnknownKey(key_id) from None

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._keys

    def __repr__(self) -> str:
        return f"KeyRing(primary={self.primary!r}, keys={sorted(self._keys)})"
