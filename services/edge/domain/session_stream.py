"""The order of one subscription to `sessions/<id>` (websocket.md, section 6).

Events come over a bus that loses, repeats and reorders. A stream lets each `append` through once and in the order of
seq, a `change` only when it is newer than the last, and of a text block in flight each piece once. What it cannot
settle from the bus it gets from the owner: it then holds back what comes live, replays the owner's snapshot, and goes
on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.edge.domain.frames import Frame

HELD_MOST = 1_024
"""Live events held back during a load; beyond it the stream loads once more."""
_BLOCKS_MOST = 64
_BROKEN = -1


class Append:
    """A durable event."""

    __slots__ = ("frame", "seq")

    def __init__(self, seq: int, frame: Frame) -> None:
        self.seq, self.frame = seq, frame


class Change:
    """A state of the session."""

    __slots__ = ("frame", "version")

    def __init__(self, version: int, frame: Frame) -> None:
        self.version, self.frame = version, frame


class Partial:
    """Live progress. `text` is added at `offset`, both in code points; `rest(n)` is the frame without its first n.

    rest() is None when nothing remains to be said.
    """

    __slots__ = ("done", "frame", "offset", "partial_id", "rest", "text")

    def __init__(
        self, partial_id: str, offset: int, text: str, done: bool, frame: Frame, rest: Callable[[int], Frame | None]
    ) -> None:
        self.partial_id, self.offset, self.text, self.done = partial_id, offset, text, done
        self.frame, self.rest = frame, rest


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The owner's state: the session, its events after the stream's `next_seq - 1`, the newest seq of its log."""

    change: Change
    appends: Sequence[Append]
    last_seq: int


class SessionStream:
    """One subscription. `emit` sends a frame; `piece(partial_id, text)` is the frame of a whole text so far.

    It starts loading. A load: load(), replay(snapshot), mark(), go_live(); until that returns True, again.
    """

    def __init__(self, emit: Callable[[Frame], None], piece: Callable[[str, str], Frame], *, after_seq: int) -> None:
        self._emit, self._piece = emit, piece
        self._next = after_seq + 1
        self._version = -1
        self._blocks: dict[str, int] = {}  # code points sent of each open text block
        self._closed: deque[str] = deque(maxlen=_BLOCKS_MOST)
        self._held: list[Append | Change | Partial] | None = []
        self._gap = False
        self._spilt = False
        self._replayed = False

    @property
    def next_seq(self) -> int:
        """Seq of the next event to send."""
        return self._next

    @property
    def loading(self) -> bool:
        """Whether it waits for a load."""
        return self._held is not None

    def behind(self, last_seq: int, version: int) -> bool:
        """Whether the owner is ahead of what was sent."""
        return last_seq >= self._next or version > self._version

    def load(self) -> None:
        """Begin a load: hold back what comes live until go_live()."""
        self._gap = False
        if self._held is None:
            self._held = []

    # Live

    def append(self, item: Append) -> bool:
        """A durable event from the bus; False when one before it is missing: it comes soon, or a load is needed."""
        if self._held is not None:
            if self._gap and item.seq == self._next and not self._spilt:
                return self._resume(item)
            self._hold(item)
            return True
        if item.seq == self._next:
            self._next += 1
            self._emit(item.frame)
        elif item.seq > self._next:
            self._held, self._gap = [], True
            self._held.append(item)
            return False
        return True

    def change(self, item: Change) -> None:
        """A state of the session from the bus."""
        if self._held is not None:
            self._hold(item)
        elif item.version > self._version:
            self._version = item.version
            self._emit(item.frame)

    def partial(self, item: Partial) -> None:
        """Live progress from the bus."""
        if self._held is not None:
            self._hold(item)
            return
        name = item.partial_id
        sent = self._blocks.get(name)
        if name in self._closed:
            return
        if item.text:
            sent = self._text(item, sent)
        elif not item.done or sent is not None:
            self._emit(item.frame)
        if item.done and sent is not None:
            self._blocks.pop(name, None)
            self._closed.append(name)

    def broke(self, partial_id: str) -> None:
        """A piece of this block was left out after all: what follows would not join."""
        if partial_id in self._blocks:
            self._blocks[partial_id] = _BROKEN

    def _text(self, item: Partial, sent: int | None) -> int | None:
        if sent is None:
            if item.offset:
                frame = item.rest(len(item.text))
                if frame is not None:
                    self._emit(frame)
                return None
            sent = 0
            if len(self._blocks) >= _BLOCKS_MOST:
                del self._blocks[next(iter(self._blocks))]
        if sent == _BROKEN or item.offset > sent:
            self._blocks[item.partial_id] = _BROKEN
            frame = item.rest(len(item.text))
        else:
            known = sent - item.offset
            frame = item.frame if known == 0 else item.rest(min(known, len(item.text)))
            self._blocks[item.partial_id] = max(sent, item.offset + len(item.text))
        if frame is not None:
            self._emit(frame)
        return self._blocks[item.partial_id]

    def _hold(self, item: Append | Change | Partial) -> None:
        assert self._held is not None
        if len(self._held) >= HELD_MOST:
            self._held.clear()
            self._spilt = True
        self._held.append(item)

    def _resume(self, item: Append) -> bool:
        held, self._held, self._gap = self._held or [], None, False
        self.append(item)
        for at, x in enumerate(held):
            if not self._take(x):
                assert self._held is not None
                self._held += held[at + 1 :]
                return False
        return True

    def _take(self, item: Append | Change | Partial) -> bool:
        if isinstance(item, Append):
            return self.append(item)
        if isinstance(item, Change):
            self.change(item)
        else:
            self.partial(item)
        return True

    # Loading

    def replay(self, snapshot: Snapshot) -> list[Frame]:
        """The frames that bring the subscriber to the snapshot; what comes live is still held back."""
        frames: list[Frame] = []
        self._next = min(self._next, snapshot.last_seq + 1) if not self._replayed else self._next
        if not self._replayed or snapshot.change.version > self._version:
            self._version = snapshot.change.version
            frames.append(snapshot.change.frame)
        self._replayed = True
        for item in snapshot.appends:
            if item.seq == self._next:
                self._next += 1
                frames.append(item.frame)
        return frames

    def mark(self) -> int:
        """Remember how much is held back; taken just before the texts in flight are read."""
        return len(self._held or ())

    def go_live(self, mark: int, texts: Mapping[str, str] | None) -> bool:
        """Send the texts in flight, then what was held back; False when it must load again.

        `texts` is the text so far by partial id as read after `mark`, None when it could not be read.
        """
        if self._spilt:
            self._held, self._spilt = [], False
            return False
        held, self._held = self._held or [], None
        for name, text in (texts or {}).items():
            sent = self._blocks.get(name, 0)
            if name not in self._closed and sent != _BROKEN and len(text) > sent:
                self._emit(self._piece(name, text[sent:]))
                self._blocks[name] = len(text)
        # Progress that came before an event of the snapshot is over.
        covered = max((i for i, x in enumerate(held) if isinstance(x, Append) and x.seq < self._next), default=-1)
        for at, item in enumerate(held):
            if isinstance(item, Partial):
                if at < covered:
                    continue
                if texts is not None and at < mark and item.text and item.partial_id not in texts:
                    # Its text was gone from the store when we looked: the block is durable by now.
                    self._closed.append(item.partial_id)
                    continue
            if not self._take(item):
                assert self._held is not None
                self._held += held[at + 1 :]
                return False
        return True
