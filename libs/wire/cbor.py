"""DAG-CBOR with the tolerance this API promises (envelope.md, section 1).

`libipld` does the work for the usual case, a small canonical body. Whatever it refuses, or writes differently than it
read, goes to the strict reader of `reader.py`, which settles what is accepted.
"""

import os
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import libipld

from .cids import Link
from .reader import DecodeError, read

MAX_DEPTH: Final = 256
"""Containers within containers, the outermost included."""

MAX_ITEMS: Final = 1 << 16
"""Values in one document, keys included. Bounds memory (some 100 bytes a value) and time (a microsecond a value at
worst) of decoding what nobody has authenticated yet; the largest honest documents hold a few thousand."""

MAX_SAFE_INTEGER: Final = (1 << 53) - 1
"""Largest integer a float64 peer holds exactly; integral floats up to it are written as integers."""

_SMALL: Final = MAX_ITEMS
"""Bodies up to this many bytes cannot exceed `MAX_ITEMS`."""

_CONTAINER_HEADS: Final = bytes((*range(0x81, 0x9C), *range(0xA1, 0xBC)))
_LINK_TAG: Final = b"\xd8\x2a"
_FLOAT_HEAD: Final = b"\xfb"
# Every float64 with an integral value of at most 2^53-1 starts like one of these; most stray 0xfb bytes do not.
_INTEGRAL_FLOAT: Final = re.compile(rb"\xfb(?=[\x3f\xbf][\xf0-\xff]|[\x40-\x43\xc0-\xc3]|[\x00\x80]\x00{7})", re.DOTALL)
_DOUBLE: Final = struct.Struct(">d")


class EncodeError(ValueError):
    """The value has no DAG-CBOR form: an unknown type, a number out of range, a key that is not text, too deep."""


def decode(body: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """The one DAG-CBOR value in `body`, with floats of integral value turned into integers.

    Raises `DecodeError` for everything envelope.md section 1 refuses, for nesting beyond `max_depth` and for more than
    `MAX_ITEMS` values. Links are `Link`, `undefined` is None.
    """
    return decode_noting_form(body, max_depth=max_depth)[0]


def decode_noting_form(body: bytes, *, max_depth: int = MAX_DEPTH) -> tuple[Any, bool]:
    """Like `decode`, and whether `body` is the canonical encoding of the value."""
    if _is_plain(body, max_depth):
        try:
            value = libipld.decode_dag_cbor(body)
            if libipld.encode_dag_cbor(value) == body:
                return value, True
        except (ValueError, RecursionError):
            pass  # the strict reader decides
    return read(body, max_depth, MAX_ITEMS)


def encode(value: Any, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Canonical DAG-CBOR of dict, list, tuple, str, bytes, int, float, bool, None and `Link`.

    Integral floats of at most 2^53-1 become integers, lone surrogates U+FFFD. Raises `EncodeError`.
    """
    try:
        body = libipld.encode_dag_cbor(value)
    except (ValueError, RecursionError):
        return _encode(value, max_depth)
    # libipld writes bytes that look like a CID as a link, and integral floats as floats.
    if _LINK_TAG in body or _holds_integral_float(body):
        return _encode(value, max_depth)
    if len(body) - len(body.translate(None, _CONTAINER_HEADS)) > max_depth:
        _check_depth(value, max_depth)
    return body


def encode_around(value: Mapping[str, Any], key: str, size: int, *, text: bool = False) -> tuple[bytes, bytes]:
    """Canonical DAG-CBOR of a map, before and after the bytes under `key`: `size` of them, which are not at hand.

    `key` may name a place in maps within the map, with dots. With `text` the bytes are those of UTF-8 text.
    """
    marker = os.urandom(16).hex()
    major, mark = (0x60, marker) if text else (0x40, marker.encode())
    place = _head(major, len(marker)) + marker.encode()
    head, _, tail = encode(_with(value, key.split("."), mark)).partition(place)
    return head + _head(major, size), tail


def _with(value: Mapping[str, Any], keys: Sequence[str], what: Any) -> dict[str, Any]:
    key, *rest = keys
    return {**value, key: _with(value[key], rest, what) if rest else what}


def canonical(value: Any, *, max_depth: int = MAX_DEPTH) -> Any:
    """The value a peer reads after `encode(value)`. Raises `EncodeError`."""
    return decode(encode(value, max_depth=max_depth), max_depth=max_depth)


def _is_plain(body: bytes, max_depth: int) -> bool:
    """Can re-encoding alone tell whether `body` is canonical, and is it too small to nest or spread too far?"""
    return (
        len(body) <= _SMALL
        and _LINK_TAG not in body
        and not _holds_integral_float(body)
        # An upper bound: bytes of text in other scripts count as heads too.
        and len(body) - len(body.translate(None, _CONTAINER_HEADS)) <= max_depth
    )


def _holds_integral_float(data: bytes) -> bool:
    if _FLOAT_HEAD not in data:
        return False
    for match in _INTEGRAL_FLOAT.finditer(data):
        if match.end() + 8 <= len(data):
            number = _DOUBLE.unpack_from(data, match.end())[0]
            if number.is_integer() and abs(number) <= MAX_SAFE_INTEGER:
                return True
    return False


def _check_depth(value: Any, max_depth: int) -> None:
    level = [value]
    depth = 0
    while level := [x for x in level if isinstance(x, (dict, list, tuple)) and x]:
        depth += 1
        if depth > max_depth:
            raise EncodeError("nested too deeply")
        level = [y for x in level for y in (x.values() if isinstance(x, dict) else x)]


def _encode(value: Any, max_depth: int) -> bytes:
    out: list[bytes] = []
    _write(value, out, max_depth)
    return b"".join(out)


def _write(value: Any, out: list[bytes], levels: int) -> None:
    if value is None:
        out.append(b"\xf6")
    elif value is True:
        out.append(b"\xf5")
    elif value is False:
        out.append(b"\xf4")
    elif isinstance(value, str):
        text = _utf8(value)
        out.append(_head(0x60, len(text)))
        out.append(text)
    elif isinstance(value, int):
        _write_int(value, out)
    elif isinstance(value, dict):
        _write_map(value, out, levels)
    elif isinstance(value, (list, tuple)):
        if value and levels == 0:
            raise EncodeError("nested too deeply")
        out.append(_head(0x80, len(value)))
        for x in value:
            _write(x, out, levels - 1)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        out.append(_head(0x40, len(value)))
        out.append(bytes(value))
    elif isinstance(value, float):
        _write_float(value, out)
    elif isinstance(value, Link):
        out.append(_LINK_TAG)
        out.append(_head(0x40, len(value.cid) + 1))
        out.append(b"\0" + value.cid)
    else:
        raise EncodeError(f"no DAG-CBOR form for {type(value).__name__}")


def _write_int(value: int, out: list[bytes]) -> None:
    if not -(1 << 64) <= value < 1 << 64:
        raise EncodeError("integer needs more than 64 bits")
    out.append(_head(0x00, value) if value >= 0 else _head(0x20, -1 - value))


def _write_float(value: float, out: list[bytes]) -> None:
    if value.is_integer() and abs(value) <= MAX_SAFE_INTEGER:
        _write_int(int(value), out)
    elif value - value == 0:
        out.append(_FLOAT_HEAD + _DOUBLE.pack(value))
    else:
        raise EncodeError("number is not finite")


def _write_map(value: dict[Any, Any], out: list[bytes], levels: int) -> None:
    if value and levels == 0:
        raise EncodeError("nested too deeply")
    entries: dict[bytes, Any] = {}
    for key, x in value.items():
        if not isinstance(key, str):
            raise EncodeError("map keys must be text")
        entries[_utf8(key)] = x
    if len(entries) != len(value):
        raise EncodeError("two map keys have the same encoding")
    out.append(_head(0xA0, len(entries)))
    for key in sorted(entries, key=lambda k: (len(k), k)):
        out.append(_head(0x60, len(key)))
        out.append(key)
        _write(entries[key], out, levels - 1)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes((major | argument,))
    if argument < 1 << 8:
        return bytes((major | 24, argument))
    if argument < 1 << 16:
        return bytes((major | 25,)) + argument.to_bytes(2, "big")
    if argument < 1 << 32:
        return bytes((major | 26,)) + argument.to_bytes(4, "big")
    return bytes((major | 27,)) + argument.to_bytes(8, "big")


__all__ = [
    "MAX_DEPTH",
    "MAX_ITEMS",
    "MAX_SAFE_INTEGER",
    "DecodeError",
    "EncodeError",
    "canonical",
    "decode",
    "encode",
    "encode_around",
]
