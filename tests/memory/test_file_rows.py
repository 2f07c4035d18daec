"""Rows of files and uploads: what races and deletions leave, without a server around them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.blobs import Blobs
from libs.errors import Invalid, NotFound, SeedError, TooLarge
from libs.objects import Objects
from libs.store import Database, Outbox, sql
from services.memory.domain.uploads import Bounds
from services.memory.store import drops
from services.memory.store.drops import DropStore
from services.memory.store.files import FileStore
from services.memory.store.objects import LOOSE
from services.memory.store.spaces import Space, SpaceStore
from services.memory.store.tables import memory_entries, metadata, outbox, spaces, upload_chunks
from services.memory.store.uploads import UploadStore

STORAGE = 1000
IDLE_MS = 5_000


class House:
    """The stores over one database and one folder, with a clock of their own."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db, self.folder, self.now, self.hints = db, folder, 1_000_000, 0
        self.owner = str(uuid.uuid4())
        clock = lambda: self.now  # noqa: E731
        tell = Outbox(db, outbox, self._publish)
        self.objects = Objects(db, Blobs(str(folder)), LOOSE, "memory", now=clock)
        room = SpaceStore(db, storage_bytes=STORAGE)
        self.files = FileStore(db, tell, self.objects, room, now=clock)
        self.uploads = UploadStore(db, tell, self.objects, self.files, room, Bounds(2, IDLE_MS), now=clock)
        self.drops = DropStore(db, now=clock)

    def _publish(self, subject: str, body: bytes) -> bool:
        self.hints += 1
        return True

    def space(self) -> Space:
        return Space(str(uuid.uuid4()), self.owner)

    async def write(self, space: Space, path: str, data: bytes) -> None:
        await self.files.write(space, path, one(data), len(data))

    async def read(self, space: Space, path: str) -> bytes:
        opened = await self.files.open(space.agent_id, path)
        return b"".join([piece async for piece in opened.pieces])

    async def upload(self, space: Space, path: str, data: bytes) -> str:
        upload_id = await self.uploads.begin(space, path, len(data))
        await self.uploads.append(await self.uploads.get(upload_id), 0, len(data), one(data))
        return upload_id

    async def only_owned_are_left(self) -> None:
        """After the sweep, whatever its clock says of writers that died."""
        self.now += 10_000_000
        await self.objects.sweep()
        there = {str(path.relative_to(self.folder)) for path in found(self.folder)}
        owned = sql(memory_entries.select()), sql(upload_chunks.select())
        assert there == {row["blob"] for statement in owned for row in await self.db.fetch(statement)}


def found(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def one(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    db = Database(database_url, size=8)
    await db.open()
    for table in reversed(metadata.sorted_tables):
        await db.execute(sql(table.delete()))
    yield House(db, tmp_path)
    await db.close()


async def test_what_was_on_its_way_when_the_agent_was_deleted_is_refused(house: House) -> None:
    space = house.space()
    await house.write(space, "a", b"a")

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await house.drops.drop(space)
        yield b"second"

    with pytest.raises(NotFound, match=r"^Agent not found$"):
        await house.files.write(space, "b", pieces())
    for late in (house.write(space, "c", b"c"), house.uploads.begin(space, "d", 1), house.files.delete(space, "a")):
        with pytest.raises(NotFound, match=r"^Agent not found$"):
            await late
    await house.drops.drop(space)
    assert await house.files.all(space.agent_id) == []
    await house.only_owned_are_left()
    assert found(house.folder) == []


async def test_a_deleted_agent_is_forgotten_after_a_week(house: House) -> None:
    space, other = house.space(), house.space()
    await house.write(other, "a", b"a")
    await house.drops.drop(space)
    for passed, left in ((drops.KEEP_MS - 1, 2), (2, 1)):
        house.now += passed
        await house.drops.forget()
        assert len(await house.db.fetch(sql(spaces.select()))) == left


async def test_an_upload_of_a_deleted_agent_goes_with_it(house: House) -> None:
    space = house.space()
    upload = await house.uploads.get(await house.upload(space, "a", b"data"))
    await house.drops.drop(space)
    with pytest.raises(NotFound, match=r"not found$"):
        await house.uploads.commit(upload)
    with pytest.raises(NotFound, match=r"^Upload not found$"):
        await house.uploads.append(upload, 4, 1, one(b"x"))
    await house.only_owned_are_left()
    assert found(house.folder) == []


async def test_of_two_commits_one_makes_the_file(house: House) -> None:
    space = house.space()
    upload = await house.uploads.get(await house.upload(space, "a", b"data"))
    ends = await asyncio.gather(*(house.uploads.commit(upload) for _ in range(3)), return_exceptions=True)
    assert sum(not isinstance(end, BaseException) for end in ends) == 1
    assert {e.message for e in ends if isinstance(e, SeedError)} == {"Upload not found"}
    assert await house.read(space, "a") == b"data" and house.hints == 1
    await house.only_owned_are_left()


async def test_of_two_equal_chunks_one_is_taken(house: House) -> None:
    space = house.space()
    upload = await house.uploads.get(await house.uploads.begin(space, "a", 4))
    twice = (house.uploads.append(upload, 0, 2, one(b"da")) for _ in range(2))
    ends = await asyncio.gather(*twice, return_exceptions=True)
    assert {str(e) for e in ends} == {"2", "Chunk offset 0 does not match 2 bytes received"}
    await house.uploads.append(upload, 2, 2, one(b"ta"))
    await house.uploads.commit(await house.uploads.get(upload.id))
    assert await house.read(space, "a") == b"data"
    await house.only_owned_are_left()


async def test_an_upload_expires_unless_it_is_touched(house: House) -> None:
    space = house.space()
    kept, left = await house.uploads.begin(space, "a", 2), await house.uploads.begin(space, "b", 1)
    house.now += IDLE_MS - 1
    await house.uploads.append(await house.uploads.get(kept), 0, 1, one(b"x"))
    house.now += 1
    await house.uploads.expire()
    with pytest.raises(NotFound, match=r"^Upload not found$"):
        await house.uploads.get(left)
    assert (await house.uploads.get(kept)).received == 1


async def test_storage_is_an_accounts(house: House) -> None:
    first, second = house.space(), house.space()
    await house.write(first, "a", bytes(600))
    await house.write(second, "a", bytes(400))
    for late in (house.write(second, "b", b"x"), house.uploads.begin(first, "b", 1)):
        with pytest.raises(TooLarge, match=r"^Account storage is full$"):
            await late
    with pytest.raises(TooLarge):
        await house.write(first, "a", bytes(601))
    await house.write(first, "a", bytes(599))
    await house.write(second, "b", b"x")
    await house.files.delete(second, "a")
    await house.write(first, "c", bytes(400))
    stranger = Space(str(uuid.uuid4()), str(uuid.uuid4()))
    await house.write(stranger, "a", bytes(STORAGE))
    await house.only_owned_are_left()


async def test_what_is_replaced_while_it_is_looked_for_is_found_anew(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = house.space()
    await house.write(space, "a", b"old")
    read, times = house.objects.read, 0

    async def late(key: str) -> AsyncIterator[bytes]:
        nonlocal times
        times += 1
        if times == 1:
            await house.write(space, "a", b"new")
            await house.objects.sweep()
        return await read(key)

    monkeypatch.setattr(house.objects, "read", late)
    assert await house.read(space, "a") == b"new" and times == 2


async def test_bytes_that_are_not_as_announced_change_nothing(house: House) -> None:
    space = house.space()
    await house.write(space, "a", b"old")
    for size in (2, 4):
        with pytest.raises(Invalid):
            await house.files.write(space, "a", one(b"new"), size)
    assert await house.read(space, "a") == b"old"
    await house.only_owned_are_left()


async def test_the_top_level_counts_what_is_below(house: House) -> None:
    space = house.space()
    for path, size in (("b/x", 1), ("b/c/y", 2), ("a", 4), ("b-", 8)):
        await house.write(space, path, bytes(size))
    top = await house.files.top(space.agent_id)
    assert [(e.path, e.directory, e.entry_count, e.size) for e in top] == [
        ("a", False, 1, 4),
        ("b", True, 2, 3),
        ("b-", False, 1, 8),
    ]
