"""Rotation: data keys are wrapped again with the ring's primary key. Values stay as they are, and readable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from libs import telemetry
from libs.audit import Actor
from libs.errors import Conflict
from services.secrets.domain.keyring import LiveRing, UnknownKey
from services.secrets.domain.sealing import CannotOpen
from services.secrets.domain.vault import Vault, WrappedKey

log = telemetry.get_logger("rotation")


@dataclass(frozen=True, slots=True)
class Batch:
    """Data keys that were re-wrapped and that did not open; the account to go on after, empty at the end."""

    rewrapped: int
    failed: int
    after: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch under the key `primary`, and which keys of the ring wrap how many data keys after it."""

    primary: str
    batch: Batch
    wrapped_by: dict[str, int]


class DataKeysStore(Protocol):
    """The rows of data keys."""

    async def rewrap(
        self,
        by: Actor,
        primary: str,
        known: list[str],
        after: str,
        most: int,
        wrap: Callable[[str, WrappedKey], Awaitable[WrappedKey | None]],
    ) -> Batch:
        """Re-wrap up to `most` that are wrapped with another of the `known` keys; what gives None is left alone."""
        ...

    async def wrapped_by(self) -> dict[str, int]:
        """Data keys by id of the key that wraps them."""
        ...


class Rotation:
    """Re-wraps in batches. Every data key stays openable: the ring holds both keys, and a row changes in one step."""

    def __init__(self, ring: LiveRing, vault: Vault, rows: DataKeysStore) -> None:
        self._ring, self._vault, self._rows = ring, vault, rows

    async def rewrap(self, by: Actor, expected: str, after: str, most: int) -> Progress:
        """One batch, accounts behind `after`. What a key wraps that the ring lacks is left alone.

        Raises Conflict when the ring's primary is not `expected`: replicas that do not agree would undo each other.
        """
        if not expected or self._vault.primary != expected:
            await self._ring.reload()
        primary = self._vault.primary
        if expected and primary != expected:
            raise Conflict(f"The key ring of this replica has {primary} as its primary key, not {expected}")
        batch = await self._rows.rewrap(by, primary, self._ring.ids, after, most, self._wrap)
        return Progress(primary, batch, await self._rows.wrapped_by())

    async def _wrap(self, account: str, key: WrappedKey) -> WrappedKey | None:
        try:
            return await self._vault.rewrap(account, key)
        except (CannotOpen, UnknownKey) as e:
            log.error("a data key does not open", account=account, key_id=key.key_id, error=type(e).__name__)
            return None
