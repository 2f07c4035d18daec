"""Server-sent events, as far as a stream of JSON values needs them (the `data` field alone)."""

from __future__ import annotations


class EventReader:
    """Cuts bytes as they arrive into the data of events. Lines end in LF, CR or CRLF; other fields are passed over."""

    __slots__ = ("_data", "_line")

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of the line that has not ended
        self._data: list[bytes] = []  # data lines of the event that has not ended

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of every event that `piece` completes, in order; several data lines are joined by LF."""
        # A line that goes on over many pieces is joined once, at its end.
        if b"\n" not in piece and b"\r" not in piece and not self._ends_in_cr():
            self._line.append(piece)
            return []
        lines = b"".join((*self._line, piece)).splitlines(keepends=True)
        # A CR at the very end may be half of a CRLF: what follows decides.
        self._line = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        events: list[bytes] = []
        for line in lines:
            self._take(line.rstrip(b"\r\n"), events)
        return events

    def _ends_in_cr(self) -> bool:
        return bool(self._line) and self._line[-1].endswith(b"\r")

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data) if len(self._data) > 1 else self._data[0])
                self._data = []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value[1:] if value.startswith(b" ") else value)
