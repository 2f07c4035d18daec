"""The order of one subscription to `runs/<root>`: newest states of each run of a tree, each journal without gaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.edge.domain.frames import Frame
from services.edge.domain.session_stream import HELD_MOST, Append, Change


@dataclass(frozen=True, slots=True)
class RunState:
    """A run of a snapshot, its journal after `after(run_id)`, and the newest seq of that journal."""

    run_id: str
    change: Change
    entries: Sequence[Append]
    last_seq: int


class RunStream:
    """One subscription. It starts loading; a load is load(), replay(states), go_live(), until that returns True."""

    def __init__(self, emit: Callable[[Frame], None], *, after_seq: int) -> None:
        self._emit, self._after = emit, after_seq
        self._versions: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._held: list[tuple[str, Append | Change | Frame]] | None = []
        self._spilt = False

    @property
    def loading(self) -> bool:
        """Whether it waits for a load."""
        return self._held is not None

    def after(self, run_id: str) -> int:
        """The seq after which the journal of a run is wanted."""
        return self._next[run_id] - 1 if run_id in self._next else self._after

    def load(self) -> None:
        """Begin a load: hold back what comes live until go_live()."""
        if self._held is None:
            self._held = []

    def change(self, run_id: str, item: Change) -> None:
        """A state of a run from the bus."""
        if self._held is not None:
            self._hold(run_id, item)
        elif item.version > self._versions.get(run_id, -1):
            self._versions[run_id] = item.version
            self._emit(item.frame)

    def append(self, run_id: str, item: Append) -> bool:
        """A journal entry from the bus; False when one before it is missing and a load is needed."""
        if self._held is not None:
            self._hold(run_id, item)
            return True
        expected = self._next.get(run_id, 1)
        if item.seq == expected:
            self._next[run_id] = expected + 1
            self._emit(item.frame)
        elif item.seq > expected:
            self._held = [(run_id, item)]
            return False
        return True

    def partial(self, run_id: str, frame: Frame) -> None:
        """Progress of a run from the bus; it is not replayed, so what comes during a load is left out."""
        if self._held is None:
            self._emit(frame)

    def replay(self, states: Sequence[RunState]) -> list[Frame]:
        """The frames that bring the subscriber to the snapshot: states first, then journals run by run."""
        frames: list[Frame] = []
        for state in states:
            if state.change.version > self._versions.get(state.run_id, -1):
                self._versions[state.run_id] = state.change.version
                frames.append(state.change.frame)
        for state in states:
            expected = self._next.get(state.run_id, min(self._after, state.last_seq) + 1)
            for entry in state.entries:
                if entry.seq == expected:
                    expected += 1
                    frames.append(entry.frame)
            self._next[state.run_id] = expected
        return frames

    def go_live(self) -> bool:
        """Send what was held back; False when it must load again."""
        if self._spilt:
            self._held, self._spilt = [], False
            return False
        held, self._held = self._held or [], None
        for at, (run_id, item) in enumerate(held):
            if isinstance(item, Change):
                self.change(run_id, item)
            elif isinstance(item, Append) and not self.append(run_id, item):
                assert self._held is not None
                self._held += held[at + 1 :]
                return False
        return True

    def _hold(self, run_id: str, item: Append | Change) -> None:
        assert self._held is not None
        if len(self._held) >= HELD_MOST:
            self._held.clear()
            self._spilt = True
        self._held.append((run_id, item))
