"""Files as IPFS blocks: raw leaves, and above several of them one UnixFS node in DAG-PB."""

from __future__ import annotations

from typing import Final

from libs import wire
from libs.hypermedia.blobs import Blob

CHUNK_BYTES: Final = 1024 * 1024
MAX_BYTES: Final = 1024 * CHUNK_BYTES
"""Largest file that one node above the leaves holds."""

_FILE: Final = 2


def file_blobs(data: bytes) -> list[Blob]:
    """The blocks of a file, its root last. Raises ValueError for more than MAX_BYTES."""
    if len(data) > MAX_BYTES:
        raise ValueError("the file is too large")
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)] or [b""]
    leaves = [Blob(wire.cid_bytes(wire.RAW, chunk), chunk) for chunk in chunks]
    if len(leaves) == 1:
        return leaves
    # A block that occurs twice is one block.
    return [*dict.fromkeys(leaves), _node(leaves, len(data))]


def ipfs_url(root: Blob) -> str:
    """The URL of a file by its root."""
    return f"ipfs://{root.name}"


def _node(leaves: list[Blob], size: int) -> Blob:
    sizes = b"".join(_number(4, len(leaf.data)) for leaf in leaves)
    unixfs = _number(1, _FILE) + _number(3, size) + sizes
    links = b"".join(_bytes(2, _bytes(1, leaf.cid) + _bytes(2, b"") + _number(3, len(leaf.data))) for leaf in leaves)
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
