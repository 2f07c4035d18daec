"""The key ring: keys that wrap every account's data key. The primary wraps, the others open what they wrapped."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from libs.errors import SeedError
from services.secrets.domain.sealing import KEY_BYTES

_EVERY_S: Final = 60.0
_AGAIN_S: Final = 5.0


class KeyRingError(Exception):
    """The text is no key ring; the message says why and holds nothing of the keys."""


class UnknownKey(Exception):
    """Something was wrapped with a key the ring does not have; `key_id` is the missing one."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the key ring has no key {key_id}")
        self.key_id = key_id


class Ring(Protocol):
    """Where wrapping keys come from."""

    @property
    def primary(self) -> str:
        """Id of the key that wraps."""
        ...

    def key(self, key_id: str) -> bytes:
        """A key that is known now. Raises UnknownKey."""
        ...

    async def find(self, key_id: str) -> bytes:
        """A key, looked for again when it is not known. Raises UnknownKey."""
        ...


class KeyRing:
    """Wrapping keys by id. Its `repr` shows ids only."""

    __slots__ = ("_keys", "_primary")

    def __init__(self, primary: str, keys: Mapping[str, bytes]) -> None:
        """Raises KeyRingError when the primary is missing or a key has not 32 bytes."""
        if primary not in keys:
            raise KeyRingError("the key ring's primary is not among its keys")
        for key_id, key in keys.items():
            if not key_id or len(key) != KEY_BYTES:
                raise KeyRingError(f"key {key_id!r} of the key ring has not {KEY_BYTES} bytes")
        self._primary = primary
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

    @property
    def primary(self) -> str:
        """Id of the key that wraps."""
        return self._primary

    @property
    def ids(self) -> list[str]:
        """Ids of all keys."""
        return sorted(self._keys)

    async def find(self, key_id: str) -> bytes:
        """The key with this id. Raises UnknownKey."""
        return self.key(key_id)

    def key(self, key_id: str) -> bytes:
        """The key with this id. Raises UnknownKey."""
        try:
            return self._keys[key_id]
        except KeyError:
            raise UnknownKey(key_id) from None

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._keys

    def __repr__(self) -> str:
        return f"KeyRing(primary={self.primary!r}, keys={self.ids})"


class LiveRing:
    """A key ring that is read again: now and then, and when a key is asked for that it does not have.

    So keys are rotated without a restart. `read` gives the ring's text and raises KeyRingError; `in_use` gives the ids
    of the keys that wrap something. A ring that lacks one of those, or cannot be read, does not replace the one in
    memory; `on_refused` is told why.
    """

    def __init__(
        self,
        ring: KeyRing,
        read: Callable[[], Awaitable[str]],
        in_use: Callable[[], Awaitable[list[str]]],
        on_refused: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ring, self._read, self._in_use, self._on_refused, self._clock = ring, read, in_use, on_refused, clock
        self._reading = asyncio.Lock()
        # When a key was last looked for in vain: a lost one must not make every request read the ring.
        self._missed: dict[str, float] = {}

    @property
    def primary(self) -> str:
        """Id of the key that wraps."""
        return self._ring.primary

    @property
    def ids(self) -> list[str]:
        """Ids of all keys."""
        return self._ring.ids

    def key(self, key_id: str) -> bytes:
        """A key that is known now. Raises UnknownKey."""
        return self._ring.key(key_id)

    async def find(self, key_id: str) -> bytes:
        """A key; the ring is read again for one it does not have, but not all the time. Raises UnknownKey."""
        if key_id not in self._ring and self._clock() - self._missed.get(key_id, -_AGAIN_S) >= _AGAIN_S:
            await self.reload()
            if key_id not in self._ring:
                self._missed[key_id] = self._clock()
        return self._ring.key(key_id)

    async def reload(self) -> None:
        """Read the ring again."""
        async with self._reading:
            try:
                ring = KeyRing.parse(await self._read())
                lost = [key_id for key_id in await self._in_use() if key_id in self._ring and key_id not in ring]
            except KeyRingError as e:
                self._on_refused(str(e))
            else:
                if lost:
                    self._on_refused(f"it lacks {', '.join(lost)}, which data is wrapped with")
                else:
                    self._ring = ring

    async def run(self) -> None:
        """Read the ring again every minute until canceled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            with contextlib.suppress(SeedError):
                await self.reload()
