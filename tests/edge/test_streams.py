"""What a subscription lets through, whatever the bus does to events."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.edge.domain.frames import Frame, Kind, text_frame
from services.edge.domain.run_stream import RunState, RunStream
from services.edge.domain.session_stream import HELD_MOST, Append, Change, Partial, SessionStream, Snapshot


class Log:
    """Frames sent, decoded."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def __call__(self, frame: Frame) -> None:
        size = frame.data[1]
        self.sent.append(msgspec.json.decode(frame.data[{126: 4, 127: 10}.get(size, 2) :]))

    def all(self, frames: list[Frame]) -> None:
        for frame in frames:
            self(frame)

    def of(self, kind: str) -> list[Any]:
        return [x[1] for x in self.sent if x[0] == kind]

    def text(self, name: str) -> str:
        return "".join(x[2] for x in self.sent if x[0] == "text" and x[1] == name)


def frame(*value: Any) -> Frame:
    return Frame(msgspec.json.encode(value))


def append(seq: int) -> Append:
    return Append(seq, frame("append", seq))


def change(version: int) -> Change:
    return Change(version, frame("change", version))


def piece(name: str, offset: int, text: str, done: bool = False) -> Partial:
    def rest(known: int) -> Frame | None:
        return frame("text", name, text[known:]) if text[known:] else None

    return Partial(name, offset, text, done, frame("done", name) if done else frame("text", name, text), rest)


def snapshot(seqs: range, last: int, version: int = 1) -> Snapshot:
    return Snapshot(change(version), [append(i) for i in seqs], last)


def opened(after: int = 0) -> tuple[SessionStream, Log]:
    log = Log()
    return SessionStream(log, lambda name, text: frame("text", name, text), after_seq=after), log


def load(stream: SessionStream, log: Log, last: int, version: int = 1, texts: dict[str, str] | None = None) -> bool:
    stream.load()
    log.all(stream.replay(snapshot(range(stream.next_seq, last + 1), last, version)))
    return stream.go_live(stream.mark(), texts)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_interleaving_sends_each_event_once_in_order(data: st.DataObject) -> None:
    total = data.draw(st.integers(0, 12))
    after = data.draw(st.integers(0, total + 3))
    stream, log = opened(after)
    committed = 0
    first = min(after, data.draw(st.integers(0, total)))

    def loaded(last: int) -> None:
        version = last + 1
        while not load(stream, log, last, version):
            pass

    started = False
    steps = data.draw(st.lists(st.sampled_from(["commit", "old", "load"]), max_size=30))
    lost = data.draw(st.sets(st.integers(1, 12)))
    pending: list[int] = []
    for step in steps:
        if step == "commit" and committed < total:
            committed += 1
            if committed not in lost:
                pending.append(committed)
        elif step == "old" and committed:
            pending.append(data.draw(st.integers(1, committed)))
        elif step == "load":
            loaded(committed)
            started = True
        if pending and data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(pending) - 1))
            seq = pending.pop(at)
            stream.append(append(seq))
            stream.change(change(seq + 1))
    for seq in pending:
        stream.append(append(seq))
    if not started or stream.loading or stream.behind(committed, -1):
        loaded(committed)
    seqs = log.of("append")
    begin = seqs[0] if seqs else committed + 1
    assert seqs == list(range(begin, committed + 1)) and begin <= max(first, after) + 1
    versions = log.of("change")
    assert versions == sorted(set(versions))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_text_in_flight_arrives_once_whatever_was_sent_before(data: st.DataObject) -> None:
    whole = data.draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole)))) | {len(whole)})
    pieces = [piece("p", a, whole[a:b]) for a, b in zip([0, *cuts], cuts, strict=False)]
    stream, log = opened()
    joined = data.draw(st.integers(0, len(pieces)))
    overlap = data.draw(st.integers(0, joined))
    for item in pieces[overlap:joined]:
        stream.partial(item)
    so_far = whole[: cuts[joined - 1]] if joined else ""
    assert load(stream, log, 0, texts={"p": so_far} if so_far else {})
    again = data.draw(st.integers(0, joined))
    for item in pieces[again:]:
        stream.partial(item)
    stream.partial(piece("p", len(whole), "", done=True))
    stream.partial(piece("p", len(whole), "", done=True))
    assert log.text("p") == whole and log.of("done") == ["p"]


def test_a_hole_in_the_text_ends_it_until_the_durable_append() -> None:
    stream, log = opened()
    load(stream, log, 0)
    stream.partial(piece("p", 0, "ab"))
    stream.partial(piece("p", 3, "d"))
    stream.partial(piece("p", 2, "c"))
    stream.partial(piece("q", 5, "never seen from its start"))
    stream.append(append(1))
    assert log.text("p") == "ab" and log.text("q") == "" and log.of("append") == [1]


def test_a_piece_left_out_for_a_slow_socket_ends_the_text() -> None:
    stream, log = opened()
    load(stream, log, 0)
    stream.partial(piece("p", 0, "ab"))
    stream.broke("p")
    stream.partial(piece("p", 2, "c"))
    stream.partial(piece("p", 3, "", done=True))
    assert log.text("p") == "ab" and log.of("done") == ["p"]


def test_progress_before_an_event_of_the_snapshot_is_over() -> None:
    stream, log = opened()
    stream.partial(piece("old", 0, "text of event 1"))
    stream.append(append(1))
    stream.partial(piece("new", 0, "going on"))
    assert load(stream, log, 1, texts={"new": "going"})
    assert log.text("old") == "" and log.text("new") == "going on" and log.of("append") == [1]


def test_text_that_was_gone_from_the_store_is_durable_by_now() -> None:
    stream, log = opened()
    stream.partial(piece("old", 0, "x"))
    stream.load()
    log.all(stream.replay(snapshot(range(1, 2), 1)))
    mark = stream.mark()
    stream.partial(piece("fresh", 0, "y"))
    assert stream.go_live(mark, {})
    stream.partial(piece("old", 1, "", done=True))
    assert log.text("old") == "" and log.text("fresh") == "y" and log.of("done") == []


def test_events_out_of_order_need_no_load() -> None:
    stream, log = opened()
    load(stream, log, 2)
    assert not stream.append(append(4)) and stream.loading
    stream.change(change(9))
    assert stream.append(append(3)) and not stream.loading
    assert log.of("append") == [1, 2, 3, 4] and log.of("change") == [1, 9]


def test_too_much_held_back_means_another_load() -> None:
    stream, log = opened()
    stream.load()
    log.all(stream.replay(snapshot(range(1, 1), 0)))
    for seq in range(1, HELD_MOST + 10):
        stream.append(append(seq))
    assert not stream.go_live(stream.mark(), {})
    assert load(stream, log, HELD_MOST + 9, 2)
    assert log.of("append") == list(range(1, HELD_MOST + 10))


# Runs


def state(run_id: str, version: int, seqs: range = range(0), last: int = 0) -> RunState:
    entries = [Append(seq, frame("entry", f"{run_id}{seq}")) for seq in seqs]
    return RunState(run_id, Change(version, frame("run", f"{run_id}@{version}")), entries, last)


def test_runs_of_a_tree_are_ordered_each_by_itself() -> None:
    log = Log()
    stream = RunStream(log, after_seq=1)
    stream.change("a", Change(5, frame("run", "a@5")))
    stream.append("a", Append(4, frame("entry", "a4")))
    log.all(stream.replay([state("a", 4, range(2, 4), 3), state("b", 1)]))
    assert stream.go_live()
    stream.change("a", Change(4, frame("run", "old")))
    stream.append("a", Append(4, frame("entry", "twice")))
    assert stream.append("c", Append(1, frame("entry", "c1")))
    assert not stream.append("c", Append(3, frame("entry", "c3"))) and stream.loading
    stream.load()
    assert stream.after("c") == 1
    log.all(stream.replay([state("c", 1, range(2, 4), 3)]))
    assert stream.go_live()
    assert log.of("run") == ["a@4", "b@1", "a@5", "c@1"]
    assert log.of("entry") == ["a2", "a3", "a4", "c1", "c2", "c3"]


def test_a_seq_beyond_the_end_of_a_journal() -> None:
    log = Log()
    stream = RunStream(log, after_seq=99)
    log.all(stream.replay([state("a", 1, range(0), 3)]))
    assert stream.go_live() and stream.append("a", Append(4, frame("entry", "a4")))
    assert log.of("entry") == ["a4"]


@given(st.integers(0, 70_000))
@settings(max_examples=30)
def test_frames_are_what_the_standard_says(size: int) -> None:
    data = text_frame(bytes(size))
    head = len(data) - size
    assert data[0] == 0x81 and head == (2 if size < 126 else 4 if size < 65_536 else 10)
    assert (data[1] if head == 2 else int.from_bytes(data[2:head], "big")) == size


def test_kinds_have_names_for_metrics() -> None:
    assert {k.value for k in Kind} == {"durable", "change", "partial"}
