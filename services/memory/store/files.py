"""Files: rows by agent and path, each with its object."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.blobs import BlobMissing
from libs.errors import Unavailable
from libs.objects import Objects, Written
from libs.store import Database, Outbox, Row, Tx, param, sql
from services.memory.domain import paths
from services.memory.domain.contents import TextCheck
from services.memory.domain.listing import Entry
from services.memory.store import spaces
from services.memory.store.objects import release
from services.memory.store.params import AGENT, PATH
from services.memory.store.spaces import Space, SpaceStore
from services.memory.store.tables import memory_entries

_READ_TRIES = 3

_e = memory_entries.c
_FIRST, _AFTER = param("first", sa.Text), param("after", sa.Text)
_MINE = _e.agent_id == AGENT
_BELOW = sa.and_(_MINE, _e.path >= _FIRST, _e.path < _AFTER)
_LISTED = (_e.path, _e.size, _e.updated_at)

_all = sql(sa.select(*_LISTED).where(_MINE))
_below = sql(sa.select(*_LISTED).where(_BELOW))
_one = sql(sa.select(*_e).where(_MINE, _e.path == PATH))
_in_the_way = sql(
    sa.select(
        sa.exists().where(_MINE, _e.path == sa.any_(param("parents", ARRAY(sa.Text)))).label("file"),
        sa.exists().where(_BELOW).label("directory"),
    )
)
_new = insert(memory_entries).values({c.name: param(c.name, c.type) for c in _e})
_put = sql(
    _new.on_conflict_do_update(
        index_elements=["agent_id", "path"],
        set_={
            **{name: _new.excluded[name] for name in ("size", "is_text", "sha256", "blob")},
            "updated_at": sa.func.greatest(_new.excluded.updated_at, _e.updated_at),
        },
    ).returning(*_LISTED)
)
_delete = sql(
    sa.delete(memory_entries)
    .where(_MINE, sa.or_(_e.path == PATH, sa.and_(_e.path >= _FIRST, _e.path < _AFTER)))
    .returning(_e.blob, _e.size)
)
_name = sa.func.split_part(_e.path, "/", 1)
_top = sql(
    sa.select(
        _name.label("path"),
        sa.func.count().label("files"),
        sa.func.sum(_e.size).cast(sa.BigInteger).label("size"),
        sa.func.max(_e.updated_at).label("updated_at"),
        sa.func.bool_or(_e.path != _name).label("directory"),
    )
    .where(_MINE)
    .group_by(_name)
    .order_by(_name)
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A file and its bytes, in pieces."""

    entry: Entry
    is_text: bool
    sha256: str
    pieces: AsyncIterator[bytes]


class FileStore:
    """Files of one database. `now` gives Unix milliseconds."""

    def __init__(
        self, db: Database, outbox: Outbox, objects: Objects, room: SpaceStore, *, now: Callable[[], int]
    ) -> None:
        self._db, self._outbox, self._objects, self._spaces, self._now = db, outbox, objects, room, now

    async def all(self, agent_id: str) -> list[Entry]:
        """All files of an agent, in no order."""
        return [_entry(row) for row in await self._db.fetch(_all, agent_id=agent_id)]

    async def below(self, agent_id: str, directory: str) -> list[Entry]:
        """All files below a directory, in no order."""
        first, after = paths.below(directory)
        return [_entry(row) for row in await self._db.fetch(_below, agent_id=agent_id, first=first, after=after)]

    async def top(self, agent_id: str) -> list[Entry]:
        """What is directly in the directory of all, in byte order; directories count all files below them.

        Their size is what these come to.
        """
        return [
            Entry(row["path"], row["size"], row["updated_at"], row["directory"], row["files"])
            for row in await self._db.fetch(_top, agent_id=agent_id)
        ]

    async def find(self, agent_id: str, path: str) -> Entry | None:
        """The file at a path, if there is one."""
        row = await self._db.fetchrow(_one, agent_id=agent_id, path=path)
        return None if row is None else _entry(row)

    async def open(self, agent_id: str, path: str) -> Opened:
        """A file to be read. Raises NotFound, Invalid for a directory, Unavailable."""
        for _ in range(_READ_TRIES):
            row = await self._db.fetchrow(_one, agent_id=agent_id, path=path)
            if row is None:
                raise paths.is_directory(path) if await self.below(agent_id, path) else paths.not_found(path)
            try:
                pieces = await self._objects.read(row["blob"])
            except BlobMissing:
                continue  # replaced meanwhile, and its object is gone
            return Opened(_entry(row), row["is_text"], row["sha256"], pieces)
        raise Unavailable("The content of the file is missing", retry_after_s=1)

    async def write(self, space: Space, path: str, pieces: AsyncIterable[bytes], size: int | None = None) -> Entry:
        """Replace the content of a file, or make it. Raises as `put`; Invalid when `pieces` are not `size` bytes."""
        check = TextCheck()
        async with self._objects.written(check.passing(pieces), size) as written:
            async with self._outbox.transaction() as tx:
                await spaces.hold(tx, space)
                return await self.put(tx, space, path, written, check.is_text())

    async def put(self, tx: Tx, space: Space, path: str, written: Written, is_text: bool) -> Entry:
        """Give a held space a file.

        Raises Invalid for a directory and below a file, TooLarge `Account storage is full`, Unavailable.
        """
        first, after = paths.below(path)
        found = await tx.fetchrow(
            _in_the_way, agent_id=space.agent_id, parents=paths.parents(path), first=first, after=after
        )
        if found is not None and found["directory"]:
            raise paths.is_directory(path)
        if found is not None and found["file"]:
            raise paths.not_writable(path)
        old = await tx.fetchrow(_one, agent_id=space.agent_id, path=path)
        grown = written.size - (0 if old is None else old["size"])
        if grown > 0:
            await self._spaces.check_room(tx, space.owner, grown)
        await self._objects.keep(tx, written)
        row = await tx.fetchrow(
            _put,
            agent_id=space.agent_id,
            path=path,
            size=written.size,
            is_text=is_text,
            sha256=written.sha256,
            blob=written.key,
            updated_at=self._now(),
        )
        if row is None:
            raise RuntimeError("an inserted row is returned")
        if old is not None:
            await release(tx, [old["blob"]])
        await spaces.grow(tx, space, int(old is None), grown)
        spaces.changed(tx, space)
        return _entry(row)

    async def delete(self, space: Space, path: str) -> bool:
        """Delete a file, or a directory with all below it; False when there is nothing."""
        first, after = paths.below(path)
        async with self._outbox.transaction() as tx:
            await spaces.hold(tx, space)
            gone = await tx.fetch(_delete, agent_id=space.agent_id, path=path, first=first, after=after)
            if gone:
                await release(tx, [row["blob"] for row in gone])
                await spaces.grow(tx, space, -len(gone), -sum(row["size"] for row in gone))
                spaces.changed(tx, space)
        return bool(gone)


def _entry(row: Row) -> Entry:
    return Entry(row["path"], row["size"], row["updated_at"])
