"""What is sent to sockets: whole WebSocket text frames, built once and shared by all who get them."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from enum import Enum

_TEXT = 0x81


class Kind(Enum):
    """What may happen to a frame when its socket is too slow."""

    DURABLE = "durable"
    """Never left out."""
    CHANGE = "change"
    """Left out when a later one of the same slot waits too."""
    PARTIAL = "partial"
    """Left out first."""


class Frame:
    """A text frame as it goes over the wire.

    `slot` names what a CHANGE is about, or the (key, partial id) whose text a PARTIAL is part of. `before`: a version
    of the protocol, and what clients of earlier ones get instead.
    """

    __slots__ = ("before", "data", "kind", "slot")

    def __init__(
        self,
        payload: bytes,
        kind: Kind = Kind.DURABLE,
        slot: Hashable = None,
        before: tuple[int, bytes] | None = None,
    ) -> None:
        self.data = text_frame(payload)
        self.kind = kind
        self.slot = slot
        self.before = (before[0], Frame(before[1], kind, slot)) if before is not None else None

    def shown_to(self, protocol: int) -> Frame:
        """The frame for a client of this version."""
        if self.before is None or protocol >= self.before[0]:
            return self
        return self.before[1]


def text_frame(payload: bytes) -> bytes:
    """An unfragmented, unmasked text frame (RFC 6455, section 5.2)."""
    size = len(payload)
    if size < 126:
        return bytes((_TEXT, size)) + payload
    if size < 1 << 16:
        return struct.pack(">BBH", _TEXT, 126, size) + payload
    return struct.pack(">BBQ", _TEXT, 127, size) + payload
