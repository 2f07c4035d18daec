"""Files as IPFS blocks."""

import os

import pytest
from multiformats import CID

from libs import wire
from libs.hypermedia import FileTree, file_blobs, ipfs_url
from libs.hypermedia.unixfs import CHUNK_BYTES, LINKS


def fields(data: bytes) -> list[tuple[int, bytes | int]]:
    """A protobuf message, read by the wire format alone."""
    at, out = 0, []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            out.append((tag >> 3, number()))
        else:
            size = number()
            out.append((tag >> 3, data[at : at + size]))
            at += size
    return out


@pytest.mark.parametrize("data", [b"", b"x", bytes(CHUNK_BYTES)])
def test_a_small_file_is_one_raw_block(data: bytes) -> None:
    (only,) = file_blobs(data)
    assert only.data == data and CID.decode(only.name).codec.name == "raw" and ipfs_url(only) == f"ipfs://{only.name}"


def test_a_known_block_has_its_known_name() -> None:
    (only,) = file_blobs(b"hello world\n")
    assert only.name == "bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4"


def test_a_large_file_is_leaves_below_one_node() -> None:
    data = os.urandom(2 * CHUNK_BYTES + 5)
    *leaves, root = file_blobs(data)
    assert b"".join(leaf.data for leaf in leaves) == data and len(leaves) == 3
    assert CID.decode(root.name).codec.name == "dag-pb" and root.cid == wire.cid_bytes(wire.DAG_PB, root.data)
    *links, unixfs = fields(root.data)
    assert [number for number, _ in links] == [2, 2, 2] and unixfs[0] == 1
    expected = [[(1, leaf.cid), (2, b""), (3, len(leaf.data))] for leaf in leaves]
    assert [fields(link) for _, link in links if isinstance(link, bytes)] == expected
    assert isinstance(unixfs[1], bytes)
    sizes = [(4, CHUNK_BYTES), (4, CHUNK_BYTES), (4, 5)]
    assert fields(unixfs[1]) == [(1, 2), (3, len(data)), *sizes]


def test_a_block_that_repeats_is_published_once() -> None:
    blobs = file_blobs(bytes(3 * CHUNK_BYTES))
    assert len(blobs) == 2 and len(fields(blobs[-1].data)) == 4


def test_more_leaves_than_one_node_holds_are_two_levels_below_the_root() -> None:
    tree = FileTree()
    chunks = [number.to_bytes(2, "big") for number in range(LINKS + 3)]
    leaves = [tree.leaf(chunk) for chunk in chunks]
    first, second, root = tree.nodes()
    assert [len(fields(node.data)) - 1 for node in (first, second, root)] == [LINKS, 3, 2]
    above = [fields(link) for _, link in fields(root.data)[:-1] if isinstance(link, bytes)]
    totals = [len(node.data) + 2 * count for node, count in ((first, LINKS), (second, 3))]
    assert above == [[(1, node.cid), (2, b""), (3, total)] for node, total in zip((first, second), totals, strict=True)]
    (_, unixfs) = fields(root.data)[-1]
    assert isinstance(unixfs, bytes)
    assert fields(unixfs)[1:] == [(3, 2 * len(chunks)), (4, 2 * LINKS), (4, 6)]
    assert fields(second.data)[0][1] == wire_link(leaves[LINKS].cid, 2)


def wire_link(cid: bytes, size: int) -> bytes:
    return b"\x0a" + bytes([len(cid)]) + cid + b"\x12\x00\x18" + bytes([size])
