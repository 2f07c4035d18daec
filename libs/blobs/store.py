"""The store and its four verbs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from libs.errors import Unavailable

PIECE_BYTES = 1024 * 1024
"""Size of the pieces in which objects are read, and best written."""

# S3 takes no smaller part but the last; an object that fits into one is sent in one request.
_PART_BYTES = 5 * 1024 * 1024
_PARTS_AT_ONCE = 2


class BlobMissing(Exception):
    """There is no object of that key."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What was written: bytes, and their SHA-256 in lower-case hex."""

    size: int
    sha256: str


def location(url: str) -> str:
    """The URL, if it can be used: `s3://bucket/prefix`, `file:///directory`, or a path. Raises ValueError."""
    scheme = urlsplit(url).scheme
    if not url or scheme not in ("", "file", "s3"):
        raise ValueError("must be a directory, a file:// or an s3:// URL")
    return url


class Blobs:
    """Objects by key at a `location`. Keys are paths of `[A-Za-z0-9_-]` segments.

    S3 reads its region, endpoint and credentials from the usual `AWS_*` variables. Every method raises Unavailable
    (503) while the store cannot be used; what is read or written then starts again from its beginning.
    """

    def __init__(self, url: str) -> None:
        scheme = urlsplit(location(url)).scheme
        self._root: Path | None = None
        if scheme == "s3":
            self._store: Any = from_url(url)
        else:
            self._root = Path(urlsplit(url).path if scheme else url).resolve()
            self._store = LocalStore(self._root, mkdir=True)

    async def put(self, key: str, pieces: AsyncIterable[bytes]) -> Stored:
        """Write an object from its pieces; it is there once this returns, whatever was under the key is replaced.

        What `pieces` raises is passed on, and then nothing is left of the object.
        """
        size, digest = 0, hashlib.sha256()
        with _usable():
            writer = obstore.open_writer_async(
                self._store, key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )
        # Left unclosed, a writer drops what it has sent.
        async for piece in pieces:
            digest.update(piece)
            size += len(piece)
            with _usable():
                await writer.write(piece)
        with _usable():
            await writer.close()
        return Stored(size, digest.hexdigest())

    async def get(self, key: str) -> AsyncIterator[bytes]:
        """The pieces of an object, some of PIECE_BYTES each. Raises BlobMissing, before the first of them."""
        with _usable(key):
            found = await obstore.get_async(self._store, key)
        return _pieces(found)

    async def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        try:
            with _usable(key):
                await obstore.delete_async(self._store, key)
        except BlobMissing:
            pass
        if self._root is not None:
            await asyncio.to_thread(_forget_unfinished, self._root / key)

    async def compose(self, key: str, parts: Sequence[str]) -> Stored:
        """Write an object that is the objects `parts` one after the other. Raises BlobMissing when one is missing."""
        async with aclosing(self._joined(parts)) as pieces:
            return await self.put(key, pieces)

    async def _joined(self, parts: Sequence[str]) -> AsyncGenerator[bytes, None]:
        for part in parts:
            async for piece in await self.get(part):
                yield piece


async def _pieces(found: Any) -> AsyncIterator[bytes]:
    with _usable():
        async for piece in found.stream(PIECE_BYTES):
            yield piece


def _forget_unfinished(path: Path) -> None:
    # What a process that was killed in mid-write leaves behind in a directory; buckets have a rule for that.
    for left in path.parent.glob(f"{path.name}#*"):
        left.unlink(missing_ok=True)


@contextmanager
def _usable(key: str = "") -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as e:
        if key and isinstance(e, FileNotFoundError):
            raise BlobMissing(key) from e
        raise Unavailable("The object store is not available, try again", retry_after_s=1) from e
