"""What waits for a slow socket, and what is left out when it is too much (websocket.md, section 8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from services.edge.domain.frames import Frame, Kind


class Overflow(Exception):
    """Even without partials and superseded changes it is too much: the socket must resubscribe."""


class SendQueue:
    """Frames in order, at most `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[Frame] = deque()
        self.size = 0

    def __len__(self) -> int:
        return len(self._frames)

    def push(self, frame: Frame) -> list[Frame]:
        """Add a frame; returns the frames that had to be left out for it, itself perhaps among them.

        Raises Overflow when it does not fit.
        """
        self._frames.append(frame)
        self.size += len(frame.data)
        if self.size <= self._limit:
            return []
        dropped = self._keep(lambda f: f.kind is not Kind.PARTIAL)
        if self.size > self._limit:
            dropped += self._keep_newest_changes()
        if self.size > self._limit:
            raise Overflow
        return dropped

    def pop(self, most: int) -> bytes:
        """The next frames joined, at least one and about `most` bytes; empty when there is none."""
        batch: list[bytes] = []
        size = 0
        while self._frames and size < most:
            data = self._frames.popleft().data
            batch.append(data)
            size += len(data)
        self.size -= size
        return batch[0] if len(batch) == 1 else b"".join(batch)

    def clear(self) -> None:
        """Forget everything."""
        self._frames.clear()
        self.size = 0

    def _keep_newest_changes(self) -> list[Frame]:
        newest: dict[Hashable, Frame] = {f.slot: f for f in self._frames if f.kind is Kind.CHANGE}
        return self._keep(lambda f: f.kind is not Kind.CHANGE or newest[f.slot] is f)

    def _keep(self, wanted: Callable[[Frame], bool]) -> list[Frame]:
        keep: deque[Frame] = deque()
        dropped: list[Frame] = []
        for frame in self._frames:
            (keep if wanted(frame) else dropped).append(frame)
        self._frames = keep
        self.size = sum(len(f.data) for f in keep)
        return dropped
