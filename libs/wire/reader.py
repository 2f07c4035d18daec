"""The strict DAG-CBOR reader: one pass, no recursion, nothing allocated on the word of a length alone."""

import struct
from typing import Any, Final

from .cids import CidError, Link, check_cid

_MAX_SAFE: Final = (1 << 53) - 1
_LEAST_FOR_SIZE: Final = (24, 1 << 8, 1 << 16, 1 << 32)
_HALF: Final = struct.Struct(">e")
_SINGLE: Final = struct.Struct(">f")
_DOUBLE: Final = struct.Struct(">d")
_LINK_TAG: Final = 42


class DecodeError(ValueError):
    """The bytes are not one acceptable DAG-CBOR value."""


class _Map:
    """A map being filled: `key` waits for its value, `last` is the sort key of the newest key."""

    __slots__ = ("key", "last", "value")

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.key: str | None = None
        self.last: tuple[int, bytes] = (-1, b"")


def read(data: bytes, max_depth: int, max_items: int) -> tuple[Any, bool]:
    """The value in `data` and whether `data` is its canonical encoding. Raises `DecodeError`."""
    reader = _Reader(data)
    stack: list[tuple[list[Any] | _Map, int]] = []
    container: list[Any] | _Map | None = None
    missing = 0
    for _ in range(max_items):
        if isinstance(container, _Map) and container.key is None:
            reader.key(container)
            continue
        value: Any = reader.item()
        if isinstance(value, _Head):
            if len(stack) + (container is not None) >= max_depth:
                raise DecodeError("nested too deeply")
            if container is not None:
                stack.append((container, missing))
            container, missing = ([] if value.major == 4 else _Map()), value.count
            continue
        while True:
            if container is None:
                if reader.at != len(data):
                    raise DecodeError("bytes after the value")
                return value, reader.canonical
            if isinstance(container, _Map):
                assert container.key is not None
                container.value[container.key] = value
                container.key = None
            else:
                container.append(value)
            missing -= 1
            if missing:
                break
            value = container.value if isinstance(container, _Map) else container
            container, missing = stack.pop() if stack else (None, 0)
    raise DecodeError("too many values")


class _Head:
    """The head of an array (major 4) or map (major 5) with at least one entry."""

    __slots__ = ("count", "major")

    def __init__(self, major: int, count: int) -> None:
        self.major = major
        self.count = count


class _Reader:
    __slots__ = ("at", "canonical", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.canonical = True

    def key(self, into: _Map) -> None:
        """Read the next key of a map."""
        major, info = self._initial()
        if major != 3:
            raise DecodeError("map keys must be text")
        raw = self._take(self._argument(info))
        order = (len(raw), raw)
        key = self._text(raw)
        if order <= into.last:
            self.canonical = False
            if key in into.value:
                raise DecodeError("doubled map key")
        else:
            into.last = order
        into.key = key

    def item(self) -> Any:
        """Read a value, or the head of a container that is not empty."""
        major, info = self._initial()
        if major == 7:
            return self._simple(info)
        argument = self._argument(info)
        if major == 0:
            return argument
        if major == 1:
            return -1 - argument
        if major == 2:
            return self._take(argument)
        if major == 3:
            return self._text(self._take(argument))
        if major == 6:
            return self._link(argument)
        if argument == 0:
            return [] if major == 4 else {}
        if argument * (major - 3) > len(self.data) - self.at:
            raise DecodeError("length exceeds the data")
        return _Head(major, argument)

    def _initial(self) -> tuple[int, int]:
        if self.at >= len(self.data):
            raise DecodeError("data ends early")
        byte = self.data[self.at]
        self.at += 1
        return byte >> 5, byte & 31

    def _argument(self, info: int) -> int:
        if info < 24:
            return info
        if info > 27:
            raise DecodeError("indefinite or reserved length")
        argument = int.from_bytes(self._take(1 << (info - 24)), "big")
        if argument < _LEAST_FOR_SIZE[info - 24]:
            raise DecodeError("not the shortest form")
        return argument

    def _take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise DecodeError("data ends early")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as e:
            raise DecodeError("text is not UTF-8") from e

    def _link(self, tag: int) -> Link:
        if tag != _LINK_TAG:
            raise DecodeError("unknown tag")
        major, info = self._initial()
        if major != 2:
            raise DecodeError("link is not bytes")
        raw = self._take(self._argument(info))
        if raw[:1] != b"\0":
            raise DecodeError("link without its leading zero")
        try:
            check_cid(raw[1:])
        except CidError as e:
            raise DecodeError("link is not a CID") from e
        return Link(raw[1:])

    def _simple(self, info: int) -> Any:
        if info == 22:
            return None
        if info == 20 or info == 21:
            return info == 21
        if info == 23:
            self.canonical = False
            return None
        if info == 27:
            number = _DOUBLE.unpack(self._take(8))[0]
        elif info == 26:
            self.canonical = False
            number = _SINGLE.unpack(self._take(4))[0]
        elif info == 25:
            self.canonical = False
            number = _HALF.unpack(self._take(2))[0]
        else:
            raise DecodeError("unknown simple value")
        if number.is_integer() and abs(number) <= _MAX_SAFE:
            self.canonical = False
            return int(number)
        if number - number != 0:
            raise DecodeError("number is not finite")
        return number
