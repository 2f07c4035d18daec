"""A second reader of the tolerance table: recursive, plain, slow, and unrelated to the one it checks."""

import io
import struct
from typing import Any

from libs.wire import Link

SAFE = 2**53 - 1


class Refused(Exception):
    """The table refuses these bytes."""


def read_all(data: bytes) -> Any:
    source = io.BytesIO(data)
    value = _item(source)
    if source.read(1):
        raise Refused("trailing")
    return value


def _exactly(source: io.BytesIO, n: int) -> bytes:
    got = source.read(min(n, 1 << 24))
    if len(got) != n:
        raise Refused("short")
    return got


def _item(source: io.BytesIO) -> Any:
    first = _exactly(source, 1)[0]
    major, low = divmod(first, 32)
    if major == 7:
        return _special(source, low)
    if low >= 28:
        raise Refused("length")
    if low < 24:
        n = low
    else:
        raw = _exactly(source, 2 ** (low - 24))
        n = int(raw.hex(), 16)
        if _shortest(n) != low:
            raise Refused("long form")
    return (_uint, _negative, _bytes, _text, _array, _map, _tag)[major](source, n)


def _shortest(n: int) -> int:
    return next(code for code, top in ((n, 24), (24, 256), (25, 65536), (26, 2**32), (27, 2**64)) if n < top)


def _special(source: io.BytesIO, low: int) -> Any:
    constants = {20: False, 21: True, 22: None, 23: None}
    if low in constants:
        return constants[low]
    form = {25: ">e", 26: ">f", 27: ">d"}.get(low)
    if form is None:
        raise Refused("simple")
    number = struct.unpack(form, _exactly(source, struct.calcsize(form)))[0]
    if number in (float("inf"), float("-inf")) or number != number:
        raise Refused("not finite")
    return int(number) if number == int(number) and -SAFE <= number <= SAFE else number


def _uint(_: io.BytesIO, n: int) -> int:
    return n


def _negative(_: io.BytesIO, n: int) -> int:
    return ~n


def _bytes(source: io.BytesIO, n: int) -> bytes:
    return _exactly(source, n)


def _text(source: io.BytesIO, n: int) -> str:
    try:
        return str(_exactly(source, n), "utf-8")
    except UnicodeDecodeError:
        raise Refused("text") from None


def _array(source: io.BytesIO, n: int) -> list[Any]:
    out: list[Any] = []
    while len(out) < n:
        out.append(_item(source))
    return out


def _map(source: io.BytesIO, n: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for _ in range(n):
        key = _item(source)
        if type(key) is not str or key in out:
            raise Refused("key")
        out[key] = _item(source)
    return out


def _tag(source: io.BytesIO, n: int) -> Link:
    if n != 42:
        raise Refused("tag")
    raw = _item(source)
    if type(raw) is not bytes or raw[:1] != b"\0":
        raise Refused("link")
    cid = raw[1:]
    if cid[:2] == b"\x12\x20":
        if len(cid) != 34:
            raise Refused("cid 0")
        return Link(cid)
    rest, numbers = cid, []
    for _ in range(4):
        end = next((i for i, byte in enumerate(rest[:9]) if byte < 128), None)
        if end is None or (end and rest[end] == 0):
            raise Refused("varint")
        numbers.append(sum((byte & 127) << (7 * i) for i, byte in enumerate(rest[: end + 1])))
        rest = rest[end + 1 :]
    if numbers[0] != 1 or numbers[3] != len(rest):
        raise Refused("cid 1")
    return Link(cid)
