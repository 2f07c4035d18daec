"""Other encodings of the same value: those a server must read as the canonical one, and those it must refuse."""

from __future__ import annotations

import random
import struct
from typing import Any

from libs.wire import Link


def write(value: Any, dice: random.Random, oddness: float) -> bytes:
    """CBOR of `value`; each item is written oddly with probability `oddness`."""
    out: list[bytes] = []
    _write(value, dice, oddness, out)
    return b"".join(out)


def reordered(value: dict[str, Any], dice: random.Random) -> bytes:
    """CBOR of a map with its keys in another order, which counts as the same map."""
    keys = sorted(value, key=lambda key: (len(key), key), reverse=True)
    return _head(0xA0, len(keys), False, dice) + b"".join(
        write(key, dice, 0) + write(value[key], dice, 0) for key in keys
    )


def _write(value: Any, dice: random.Random, oddness: float, out: list[bytes]) -> None:
    odd = dice.random() < oddness
    if odd and dice.random() < 0.05:
        # A tag that nobody knows, or a count that lies.
        out.append(dice.choice((b"\xc0", b"\xd8\x2a", b"\xd9\xd9\xf7", b"\x9f", b"\xbf", b"\xff", b"\xf8\xff")))
    if isinstance(value, bool) or value is None:
        out.append(b"\xf5" if value is True else b"\xf4" if value is False else b"\xf7" if odd else b"\xf6")
    elif isinstance(value, int):
        _number(value, odd, dice, out)
    elif isinstance(value, float):
        _real(value, odd, dice, out)
    elif isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        out.append(_head(0x60, len(text), odd, dice))
        out.append(text)
    elif isinstance(value, bytes):
        out.append(_head(0x40, len(value), odd, dice))
        out.append(value)
    elif isinstance(value, Link):
        out.append(b"\xd8\x2a" + _head(0x40, len(value.cid) + 1, odd, dice) + b"\0" + value.cid)
    elif isinstance(value, list):
        out.append(_head(0x80, len(value), odd, dice))
        for x in value:
            _write(x, dice, oddness, out)
    else:
        _map(value, odd, dice, oddness, out)


def _map(value: dict[str, Any], odd: bool, dice: random.Random, oddness: float, out: list[bytes]) -> None:
    keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
    if odd:
        dice.shuffle(keys)
        if keys and dice.random() < 0.1:
            keys.append(dice.choice(keys))
    out.append(_head(0xA0, len(keys), odd and dice.random() < 0.1, dice))
    for key in keys:
        _write(key, dice, oddness / 10, out)
        _write(value[key], dice, oddness, out)


def _number(value: int, odd: bool, dice: random.Random, out: list[bytes]) -> None:
    if odd and dice.random() < 0.7 and abs(value) <= 2**53:
        _real(float(value), True, dice, out)
    elif value >= 0:
        out.append(_head(0, value, odd, dice))
    else:
        out.append(_head(0x20, -1 - value, odd, dice))


def _real(value: float, odd: bool, dice: random.Random, out: list[bytes]) -> None:
    for head, form in ((b"\xf9", ">e"), (b"\xfa", ">f")) if odd else ():
        try:
            raw = struct.pack(form, value)
        except OverflowError:
            continue
        if struct.unpack(form, raw)[0] == value:
            out.append(head + raw)
            return
    out.append(b"\xfb" + struct.pack(">d", value))


def _head(major: int, count: int, odd: bool, dice: random.Random) -> bytes:
    width = next(w for w, top in ((0, 24), (1, 1 << 8), (2, 1 << 16), (4, 1 << 32), (8, 1 << 64)) if count < top)
    if odd and dice.random() < 0.3:
        width = {0: 1, 1: 2, 2: 4, 4: 8, 8: 8}[width]
    if width == 0:
        return bytes((major | count,))
    return bytes((major | {1: 24, 2: 25, 4: 26, 8: 27}[width],)) + count.to_bytes(width, "big")
