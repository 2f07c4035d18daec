"""One suite for every kind of store, and what is particular to a directory and to a bucket."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.blobs import PIECE_BYTES, BlobMissing, Blobs, Stored, location
from libs.errors import Unavailable
from tests.blobs.fake_s3 import FakeS3


async def several(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def read(blobs: Blobs, key: str) -> bytes:
    return b"".join([piece async for piece in await blobs.get(key)])


def stored(data: bytes) -> Stored:
    return Stored(len(data), hashlib.sha256(data).hexdigest())


@pytest.fixture
async def s3(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeS3]:
    fake = FakeS3()
    endpoint = await fake.start()
    for name, value in {
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    yield fake
    await fake.stop()


@pytest.fixture(params=["directory", "bucket"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path, s3: FakeS3) -> Blobs:
    return Blobs(str(tmp_path / "blobs") if request.param == "directory" else "s3://bucket/some/prefix")


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, 5 * PIECE_BYTES, 5 * PIECE_BYTES + 1, 17 * PIECE_BYTES + 3])
async def test_what_is_put_is_what_is_got(blobs: Blobs, size: int) -> None:
    data = bytes(i * 31 % 251 for i in range(4096)) * (size // 4096 + 1)
    data = data[:size]
    pieces = [data[at : at + PIECE_BYTES] for at in range(0, size, PIECE_BYTES)]
    assert await blobs.put("a/b-1", several(pieces)) == stored(data)
    got = [piece async for piece in await blobs.get("a/b-1")]
    assert b"".join(got) == data
    assert all(len(piece) < 2 * PIECE_BYTES for piece in got), "never a whole large object at once"


async def test_a_missing_object_is_told_before_its_first_piece(blobs: Blobs) -> None:
    with pytest.raises(BlobMissing):
        await blobs.get("nowhere/at-all")


async def test_putting_again_replaces(blobs: Blobs) -> None:
    await blobs.put("k", several([b"first, and longer"]))
    await blobs.put("k", several([b"second"]))
    assert await read(blobs, "k") == b"second"


async def test_deleting_is_the_same_twice(blobs: Blobs) -> None:
    await blobs.put("d/k", several([b"x"]))
    await blobs.put("d/k2", several([b"y"]))
    for _ in range(2):
        await blobs.delete("d/k")
        with pytest.raises(BlobMissing):
            await blobs.get("d/k")
    assert await read(blobs, "d/k2") == b"y"


async def test_composing_joins_in_order_and_keeps_the_parts(blobs: Blobs) -> None:
    parts = {"p/0": b"a" * (3 << 20), "p/1": b"b", "p/2": b"", "p/3": b"c" * (4 << 20)}
    for key, data in parts.items():
        await blobs.put(key, several([data] if data else []))
    whole = b"".join(parts.values()) + b"b"
    assert await blobs.compose("whole", [*parts, "p/1"]) == stored(whole)
    assert await read(blobs, "whole") == whole
    assert await read(blobs, "p/1") == b"b"


async def test_composing_from_what_is_missing_leaves_nothing(blobs: Blobs) -> None:
    await blobs.put("p/0", several([b"a" * (6 << 20)]))
    with pytest.raises(BlobMissing):
        await blobs.compose("whole", ["p/0", "p/1"])
    with pytest.raises(BlobMissing):
        await blobs.get("whole")


@pytest.mark.parametrize("megabytes", [0, 12])
async def test_pieces_that_fail_leave_nothing_and_pass_their_error_on(blobs: Blobs, megabytes: int) -> None:
    async def failing() -> AsyncIterator[bytes]:
        for _ in range(megabytes):
            yield b"z" * PIECE_BYTES
        raise LookupError("of the pieces")

    with pytest.raises(LookupError, match="of the pieces"):
        await blobs.put("k", failing())
    with pytest.raises(BlobMissing):
        await blobs.get("k")


async def test_a_cancelled_put_leaves_nothing_and_ends_its_pieces(blobs: Blobs) -> None:
    reached, ended = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        try:
            for _ in range(7):
                yield b"z" * PIECE_BYTES
            reached.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    putting = asyncio.create_task(blobs.put("k", slow()))
    await reached.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert ended.is_set()
    with pytest.raises(BlobMissing):
        await blobs.get("k")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.binary(max_size=40), max_size=12), cuts=st.lists(st.integers(0, 12), max_size=4))
async def test_any_split_gives_the_same_object(tmp_path: Path, pieces: list[bytes], cuts: list[int]) -> None:
    store = Blobs(str(tmp_path / "split"))
    edges = [0, *sorted(min(cut, len(pieces)) for cut in cuts), len(pieces)]
    keys = [f"part-{index}" for index in range(len(edges) - 1)]
    for key, start, end in zip(keys, edges, edges[1:], strict=False):
        await store.put(key, several(pieces[start:end]))
    assert await store.compose("whole", keys) == stored(b"".join(pieces))
    assert await read(store, "whole") == b"".join(pieces)


async def test_a_small_object_costs_a_bucket_one_request(s3: FakeS3) -> None:
    blobs = Blobs("s3://bucket/p")
    await blobs.put("small", several([b"x" * 1000] * 3))
    assert s3.requests == ["PUT object"] and s3.objects == {"p/small": b"x" * 3000}
    s3.requests.clear()
    await blobs.put("large", several([b"x" * PIECE_BYTES] * 11))
    assert sorted(s3.requests) == ["POST part", "POST uploads", "PUT part", "PUT part", "PUT part"]


async def test_a_store_that_refuses_is_unavailable(s3: FakeS3) -> None:
    blobs = Blobs("s3://bucket")
    await blobs.put("k", several([b"x"]))
    s3.away = True
    calls: list[Any] = [
        blobs.put("k2", several([b"x"])),
        blobs.get("k"),
        blobs.delete("k"),
        blobs.compose("k3", ["k"]),
    ]
    for call in calls:
        with pytest.raises(Unavailable) as e:
            await call
        assert e.value.retry_after_s
    s3.away = False
    assert await read(blobs, "k") == b"x"


async def test_a_directory_forgets_what_a_killed_writer_left(tmp_path: Path) -> None:
    blobs = Blobs(f"file://{tmp_path}/store")
    await blobs.put("a/k", several([b"x"]))
    await blobs.put("a/k2", several([b"y"]))
    left = tmp_path / "store" / "a" / "k#1"
    left.write_bytes(b"half")
    await blobs.delete("a/k")
    assert not left.exists()
    assert [path.name for path in (tmp_path / "store" / "a").iterdir()] == ["k2"]


async def test_a_directory_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "store"))
    (tmp_path / "store" / "a").write_bytes(b"a file where a folder must be")
    with pytest.raises(Unavailable):
        await blobs.put("a/k", several([b"x"]))


@pytest.mark.parametrize("url", ["", "http://host/bucket", "ftp://x", "gs://bucket"])
def test_other_stores_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be a directory"):
        location(url)
