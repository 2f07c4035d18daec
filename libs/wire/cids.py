"""Content identifiers: CIDv1 with SHA-256 as this API writes them, and the structural check of any CID on the wire."""

import base64
import binascii
import hashlib
from typing import Final

import libipld

RAW: Final = 0x55
"""Multicodec of plain bytes."""

DAG_PB: Final = 0x70
"""Multicodec of UnixFS nodes."""

DAG_CBOR: Final = 0x71
"""Multicodec of DAG-CBOR documents."""

_SHA2_256: Final = 0x12
_VERSION_0: Final = b"\x12\x20"
_MAX_VARINT_BYTES: Final = 9
_MAX_CID_TEXT: Final = 512


class CidError(ValueError):
    """The bytes or text are not a CID."""


class Link:
    """A CBOR tag 42 value: a CID in its binary form, without the leading zero byte that the tag carries.

    A plain class on purpose: msgspec would turn a struct into a map.
    """

    __slots__ = ("cid",)

    def __init__(self, cid: bytes) -> None:
        self.cid = cid

    @classmethod
    def parse(cls, text: str) -> "Link":
        """A link from the base32 text of a CIDv1; raises `CidError`."""
        return cls(cid_from_text(text))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Link) and other.cid == self.cid

    def __hash__(self) -> int:
        return hash((Link, self.cid))

    def __repr__(self) -> str:
        return f"Link({self})"

    def __str__(self) -> str:
        return cid_text(self.cid)


def cid_bytes(codec: int, data: bytes) -> bytes:
    """Binary CIDv1 of `data`: SHA-256 under the multicodec `codec` (below 0x80)."""
    return bytes((1, codec, _SHA2_256, 32)) + hashlib.sha256(data).digest()


def cid_text(cid: bytes) -> str:
    """Text of a binary CID: multibase base32 (`b…`, lower case, unpadded), for version 0 bare base58."""
    if cid[:2] == _VERSION_0 and len(cid) == 34:
        return libipld.encode_multibase("z", cid)[1:]
    return "b" + base64.b32encode(cid).decode().rstrip("=").lower()


def cid_dag_cbor(data: bytes) -> str:
    """CID text of a DAG-CBOR document (the type `Cid` of the schema)."""
    return cid_text(cid_bytes(DAG_CBOR, data))


def cid_from_text(text: str) -> bytes:
    """Binary form of a CIDv1 in canonical multibase base32 text; raises `CidError`."""
    if len(text) > _MAX_CID_TEXT or text[:1] != "b" or text != text.lower():
        raise CidError("not a base32 CID")
    digits = text[1:].upper()
    try:
        cid = base64.b32decode(digits + "=" * (-len(digits) % 8))
    except (binascii.Error, ValueError) as e:
        raise CidError("not base32") from e
    if cid_text(cid) != text:
        raise CidError("not canonical base32")
    check_cid(cid)
    return cid


def check_cid(cid: bytes) -> None:
    """Raise `CidError` unless the bytes are one whole CID, of version 0 or 1."""
    if cid[:2] == _VERSION_0:
        if len(cid) != 34:
            raise CidError("a CID of version 0 has 34 bytes")
        return
    version, at = _varint(cid, 0)
    if version != 1:
        raise CidError("unknown CID version")
    _, at = _varint(cid, at)
    _, at = _varint(cid, at)
    size, at = _varint(cid, at)
    if at + size != len(cid):
        raise CidError("digest length does not match")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for i in range(at, min(len(data), at + _MAX_VARINT_BYTES)):
        byte = data[i]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and i > at:
                raise CidError("varint is not minimal")
            return value, i + 1
        shift += 7
    raise CidError("varint does not end")
