"""Files published as their bytes come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.hypermedia import CHUNK_BYTES, Blob, PublishFailed, file_blobs, publish_file


class Server:
    """Takes blobs, until it has taken `most` batches."""

    def __init__(self, most: int = 100) -> None:
        self.batches: list[list[Blob]] = []
        self._most = most

    async def publish(self, blobs: Sequence[Blob]) -> None:
        if len(self.batches) == self._most:
            raise PublishFailed("full")
        self.batches.append(list(blobs))


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 8 * CHUNK_BYTES, 17 * CHUNK_BYTES + 5])
async def test_the_blocks_are_those_of_the_whole_file_and_the_root_is_last(size: int) -> None:
    data = bytes(at // CHUNK_BYTES % 256 for at in range(0, size, 1024)) * 1024
    data = (data + bytes(size))[:size]
    server = Server()
    root = await publish_file(server, pieces(data, 700_001))
    whole = file_blobs(data)
    sent = [blob for batch in server.batches for blob in batch]
    assert root == whole[-1] == sent[-1]
    assert set(sent) == set(whole)
    assert all(sum(len(blob.data) for blob in batch) <= 9 * CHUNK_BYTES for batch in server.batches)


@given(st.binary(max_size=300), st.integers(1, 50))
async def test_pieces_do_not_matter(data: bytes, size: int) -> None:
    assert await publish_file(Server(), pieces(data, size)) == file_blobs(data)[-1]


async def test_a_refusal_ends_it() -> None:
    server = Server(most=1)
    with pytest.raises(PublishFailed, match="full"):
        await publish_file(server, pieces(bytes(20 * CHUNK_BYTES), CHUNK_BYTES))
    assert len(server.batches) == 1
