"""Server-sent events: our reader against the SDK's decoder, which reads the same format."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from services.runs.providers.sse import EventReader

LINES = st.lists(
    st.sampled_from([b"data: {}", b"data:x", b"data:  y", b"data", b"data:", b"event: error", b": note", b"id: 7", b""])
    | st.binary(max_size=6).filter(lambda line: b"\n" not in line and b"\r" not in line),
    max_size=12,
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def read(pieces: Sequence[bytes]) -> list[bytes]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


async def as_the_sdk_reads(body: bytes) -> list[str]:
    async def pieces() -> AsyncIterator[bytes]:
        yield body

    # It reports events without data too: those that have only a name or an id.
    return [event.data async for event in SSEDecoder().aiter_bytes(pieces()) if event.data]


@given(LINES, ENDS, st.data())
def test_every_cut_gives_the_events_the_sdk_finds(lines: list[bytes], end: bytes, data: st.DataObject) -> None:
    body = b"".join(line.decode("utf-8", "ignore").encode() + end for line in lines) + b"\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    events = [event for event in read([piece for piece in pieces if piece]) if event]
    assert [event.decode() for event in events] == asyncio.run(as_the_sdk_reads(body))


def test_a_line_in_many_pieces_is_joined_once() -> None:
    assert read([b"data: ", *[b"x" * 10] * 50, b"\n", b"\n"]) == [b"x" * 500]


def test_an_event_that_does_not_end_is_none() -> None:
    assert read([b"data: {}\n"]) == []
