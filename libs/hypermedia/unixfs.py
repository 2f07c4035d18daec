"""Files as IPFS blocks: raw leaves, and above several of them UnixFS nodes in DAG-PB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from libs import wire
from libs.hypermedia.blobs import Blob

CHUNK_BYTES: Final = 1024 * 1024
LINKS: Final = 1024
"""Blocks directly below one node at most."""

_FILE: Final = 2


@dataclass(frozen=True, slots=True)
class _Part:
    """A block, by what a node above it says: bytes of the file in it, and of all blocks from it down."""

    cid: bytes
    size: int
    total: int


class FileTree:
    """A file's blocks, made as its bytes come: `leaf` for each CHUNK_BYTES in order, then `nodes`. Holds no bytes."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def leaf(self, chunk: bytes) -> Blob:
        """The block of the next bytes: CHUNK_BYTES of them, fewer only in the last."""
        blob = Blob(wire.cid_bytes(wire.RAW, chunk), chunk)
        self._parts.append(_Part(blob.cid, len(chunk), len(chunk)))
        return blob

    def nodes(self) -> list[Blob]:
        """The blocks above the leaves, the root last; none when the only leaf is the root."""
        made: list[Blob] = []
        level = self._parts
        while len(level) > 1:
            above: list[_Part] = []
            for at in range(0, len(level), LINKS):
                below = level[at : at + LINKS]
                node = _node(below)
                made.append(node)
                total = len(node.data) + sum(part.total for part in below)
                above.append(_Part(node.cid, sum(part.size for part in below), total))
            level = above
        return made


def file_blobs(data: bytes) -> list[Blob]:
    """The blocks of a file, its root last; each once."""
    tree = FileTree()
    leaves = [tree.leaf(data[at : at + CHUNK_BYTES]) for at in range(0, len(data) or 1, CHUNK_BYTES)]
    # A block that occurs twice is one block.
    return list(dict.fromkeys([*leaves, *tree.nodes()])) if len(leaves) > 1 else leaves


def ipfs_url(root: Blob) -> str:
    """The URL of a file by its root."""
    return f"ipfs://{root.name}"


def _node(below: list[_Part]) -> Blob:
    sizes = b"".join(_number(4, part.size) for part in below)
    unixfs = _number(1, _FILE) + _number(3, sum(part.size for part in below)) + sizes
    links = b"".join(_bytes(2, _bytes(1, part.cid) + _bytes(2, b"") + _number(3, part.total)) for part in below)
    # DAG-PB is written links first.
    data = links + _bytes(1, unixfs)
    return Blob(wire.cid_bytes(wire.DAG_PB, data), data)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
