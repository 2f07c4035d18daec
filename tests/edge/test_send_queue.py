"""What a slow socket loses, and when it is given up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edge.domain.frames import Frame, Kind
from services.edge.domain.send_queue import Overflow, SendQueue


def frame(kind: Kind, slot: str = "", size: int = 8) -> Frame:
    return Frame(bytes(size), kind, slot)


def test_partials_go_first_then_superseded_changes_then_the_socket() -> None:
    queue = SendQueue(100)
    first, partial = frame(Kind.CHANGE, "a"), frame(Kind.PARTIAL)
    for f in (first, partial, frame(Kind.DURABLE), frame(Kind.CHANGE, "b")):
        assert queue.push(f) == []
    assert queue.push(frame(Kind.DURABLE, size=60)) == [partial]
    second = frame(Kind.CHANGE, "a")
    assert queue.push(second) == [first]
    with pytest.raises(Overflow):
        queue.push(frame(Kind.DURABLE, size=60))


def test_a_partial_that_does_not_fit_is_left_out() -> None:
    queue = SendQueue(50)
    queue.push(frame(Kind.DURABLE, size=40))
    late = frame(Kind.PARTIAL)
    assert queue.push(late) == [late] and len(queue) == 1


@given(st.lists(st.tuples(st.sampled_from(Kind), st.sampled_from("abc"), st.integers(0, 40)), max_size=40))
def test_order_and_bounds(pushed: list[tuple[Kind, str, int]]) -> None:
    queue = SendQueue(120)
    frames: list[Frame] = []
    dropped: set[int] = set()
    try:
        for kind, slot, size in pushed:
            frames.append(frame(kind, slot, size))
            dropped |= {id(f) for f in queue.push(frames[-1])}
            assert queue.size <= 120
    except Overflow:
        return
    kept = [f for f in frames if id(f) not in dropped]
    assert queue.pop(1 << 20) == b"".join(f.data for f in kept) and queue.size == 0
    assert {id(f) for f in frames if f.kind is Kind.DURABLE}.isdisjoint(dropped)
    for slot in "abc":
        states = [f for f in frames if f.kind is Kind.CHANGE and f.slot == slot]
        assert not states or id(states[-1]) not in dropped, "the newest state is never left out"
