"""Unit: what the decoder accepts and refuses (envelope.md, section 1), what the encoder writes, and hostile bodies."""

import struct
import tracemalloc

import pytest

from libs.wire import MAX_ITEMS, DecodeError, EncodeError, Link, canonical, cid_bytes, decode, encode, encode_around
from libs.wire.cbor import decode_noting_form

CID = cid_bytes(0x71, b"\xa0")
LINK = b"\xd8\x2a\x58\x25\x00" + CID


def double(x: float) -> bytes:
    return b"\xfb" + struct.pack(">d", x)


ACCEPTED = {
    "half float": ("f93e00", 1.5),
    "single float": ("fa3fc00000", 1.5),
    "double": (double(1.5).hex(), 1.5),
    "integral double": (double(7.0).hex(), 7),
    "integral half float": ("f93c00", 1),
    "integral single float": ("fac0000000", -2),
    "minus zero": (double(-0.0).hex(), 0),
    "largest safe double": (double(2.0**53 - 1).hex(), 2**53 - 1),
    "double of 2^53": (double(2.0**53).hex(), 2.0**53),
    "big integral double": (double(1e21).hex(), 1e21),
    "undefined": ("f7", None),
    "undefined in an array": ("81f7", [None]),
    "keys in another order": ("a2626262016161a2627a7a02617901", {"a": {"y": 1, "zz": 2}, "bb": 1}),
    "keys of one length in another order": ("a2616201616101", {"a": 1, "b": 1}),
    "2^64-1": ("1bffffffffffffffff", 2**64 - 1),
    "-2^64": ("3bffffffffffffffff", -(2**64)),
    "2^53": ("1b0020000000000000", 2**53),
    "link": (LINK.hex(), Link(CID)),
    "link of version 0": ((b"\xd8\x2a\x58\x23\x00\x12\x20" + bytes(32)).hex(), Link(b"\x12\x20" + bytes(32))),
    "NUL in text": ("6100", "\0"),
    "empty key": ("a16000", {"": 0}),
    "__proto__": ("a1695f5f70726f746f5f5f00", {"__proto__": 0}),
}

REFUSED = {
    "empty": "",
    "trailing byte": "0000",
    "integer in two bytes": "1800",
    "integer in three bytes": "190005",
    "integer in five bytes": "1a000000ff",
    "integer in nine bytes": "1b0000000000000001",
    "negative in two bytes": "3800",
    "text length in two bytes": "780161",
    "bytes length in two bytes": "580161",
    "array length in two bytes": "9800",
    "map length in two bytes": "b800",
    "tag in three bytes": "d9002a" + LINK.hex()[4:],
    "indefinite array": "9fff",
    "indefinite map": "bfff",
    "indefinite text": "7f6161ff",
    "indefinite bytes": "5f4161ff",
    "doubled key": "a2616101616102",
    "doubled key apart": "a3616101616201616102",
    "key of a map in another order doubled": "a3616201616101616202",
    "integer key": "a10102",
    "bytes key": "a1416102",
    "null key": "a1f602",
    "link as key": "a1" + LINK.hex() + "02",
    "date tag": "c06161",
    "bignum tag": "c24101",
    "self-described tag": "d9d9f701",
    "NaN": "fb7ff8000000000000",
    "Infinity": "fb7ff0000000000000",
    "-Infinity": "fbfff0000000000000",
    "half NaN": "f97e00",
    "half Infinity": "f97c00",
    "single NaN": "fa7fc00000",
    "other simple value": "f0",
    "simple value in two bytes": "f8ff",
    "invalid UTF-8": "62fffe",
    "surrogate in UTF-8": "63eda080",
    "invalid UTF-8 in a key": "a161ff00",
    "reserved info 28": "1c",
    "reserved info 30": "fe",
    "lone break": "ff",
    "break in an array": "81ff",
    "cut array": "81",
    "cut map": "a1",
    "map without its value": "a16161",
    "cut text": "6561",
    "cut head": "19ff",
    "huge bytes": "5bffffffffffffffff00",
    "huge text": "7b7fffffffffffffff00",
    "huge array": "9bffffffffffffffff00",
    "huge map": "bbffffffffffffffff00",
    "array longer than the rest": "9affffffff00",
    "link of no bytes": "d82a40",
    "link without leading zero": "d82a5824" + CID.hex(),
    "link with a short digest": "d82a582400" + CID[:-1].hex(),
    "link with a long digest": "d82a582600" + CID.hex() + "00",
    "link as text": "d82a6161",
    "zeros": "00" * 64,
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str):
    wire, value = ACCEPTED[name]
    got = decode(bytes.fromhex(wire))
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_inside_a_document(name: str):
    wire, value = ACCEPTED[name]
    body = b"\xa2\x61a\x82\x01" + bytes.fromhex(wire) + b"\x61b\x61x"
    got, is_canonical = decode_noting_form(body)
    assert got == {"a": [1, value], "b": "x"}
    assert is_canonical == (encode(got) == body)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(REFUSED[name]))


@pytest.mark.parametrize("name", [n for n in REFUSED if n not in ("empty", "trailing byte", "zeros")])
def test_refused_inside_a_document(name: str):
    with pytest.raises(DecodeError):
        decode(b"\xa1\x61a\x82\x01" + bytes.fromhex(REFUSED[name]))


WRITTEN = {
    "integral float": (1.0, "01"),
    "minus zero": (-0.0, "00"),
    "float": (0.1, double(0.1).hex()),
    "largest safe float": (float(2**53 - 1), "1b001fffffffffffff"),
    "2^53 as float": (2.0**53, double(2.0**53).hex()),
    "2^53 as integer": (2**53, "1b0020000000000000"),
    "negative": (-25, "3818"),
    "tuple": ((1, (2.0,)), "82018102"),
    "keys by length": ({"bb": 1, "a": 2, "": 3, "é": 4, "b": 5}, "a56003616102616205626262016" + "2c3a904"),
    "lone surrogate": ("a\ud800", "6461efbfbd"),
    "surrogate pair": ("\ud83d\ude00", "64f09f9880"),
    "bytes shaped like a CID": (CID, "5824" + CID.hex()),
    "bytes shaped like a CID of version 0": ({"a": b"\x12\x20" + bytes(32)}, "a161615822" + "1220" + "00" * 32),
    "bytearray": (bytearray(b"a"), "4161"),
    "link": ([Link(CID)], "81" + LINK.hex()),
    "bool": ([True, False, None], "83f5f4f6"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written(name: str):
    value, wire = WRITTEN[name]
    assert encode(value).hex() == wire
    assert encode(decode(encode(value))).hex() == wire


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**64, -(2**64) - 1, {1: 2}, {b"a": 1}, {None: 1}, object(), {1}]
)
def test_has_no_encoding(value: object):
    with pytest.raises(EncodeError):
        encode(value)
    with pytest.raises(EncodeError):
        encode({"a": [1.0, value]})


def test_keys_that_become_equal_are_refused():
    with pytest.raises(EncodeError):
        encode(dict.fromkeys(["\ud800", "\udfff"]))


def test_canonical_is_what_a_peer_reads():
    assert canonical({"b": (1.0, "\udfff"), "a": -0.0}) == {"a": 0, "b": [1, "\ufffd"]}


def nested(depth: int, container: bytes = b"\x81") -> bytes:
    return container * depth + b"\x80"


@pytest.mark.parametrize("container", [b"\x81", b"\xa1\x61a"])
def test_depth_limit_is_exact(container: bytes):
    value = decode(nested(256, container))
    assert encode(value) == nested(256, container)
    with pytest.raises(DecodeError):
        decode(nested(257, container))
    assert decode(nested(10, container), max_depth=10) is not None
    with pytest.raises(DecodeError):
        decode(nested(11, container), max_depth=10)


def test_depth_is_counted_beside_text_of_many_bytes():
    """Text whose bytes look like heads must not be mistaken for nesting, nor hide it."""
    text = "я" * 1000 + "日本語" * 1000
    assert decode(encode({"a": text, "b": [[text]]})) == {"a": text, "b": [[text]]}
    with pytest.raises(DecodeError):
        decode(b"\xa1\x61a\x82" + encode(text) + nested(256))


def test_encoding_too_deep_is_refused():
    value: object = 0
    for _ in range(256):
        value = [value]
    assert decode(encode(value)) == value
    for too_deep in ([value], {"a": value}, [value, 1.0], (value,)):
        with pytest.raises(EncodeError):
            encode(too_deep)
    for _ in range(100_000):
        value = [value]
    with pytest.raises(EncodeError):
        encode(value)
    while isinstance(value, list) and value:  # taken apart here: freeing it in one go would recurse
        value = value[0]


@pytest.mark.parametrize(
    "body",
    [
        b"\x81" * 1_000_000,
        b"\xa1\x61a" * 300_000,
        b"\x81" * 1_100_000 + b"\x80",
        b"\xd8\x2a" * 100_000,
        b"\x9b\x00\x00\x00\x00\x00\x0f\xff\xff" * 10_000,
        b"\xbb\x00\x00\x00\x00\x00\x0f\xff\xff" * 10_000,
    ],
)
def test_hostile_body_is_refused_within_bounds(body: bytes):
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(body)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("item", [b"\x01", b"\x80", b"\xf7"])
def test_more_values_than_allowed_are_refused(item: bytes):
    with pytest.raises(DecodeError, match="too many"):
        decode(b"\x9a\x00\x04\x00\x00" + item * (1 << 18))


def test_as_many_values_as_allowed_are_read():
    count = MAX_ITEMS - 1
    body = b"\x99" + count.to_bytes(2, "big") + b"\x01" * count
    assert decode(body) == [1] * count


def test_large_bytes_are_read_without_the_item_limit():
    chunk = bytes(range(256)) * (1 << 14)
    assert decode(encode({"content": chunk}))["content"] == chunk


@pytest.mark.parametrize("size", [0, 1, 23, 24, 255, 256, 65_535, 65_536, 1_000_000])
@pytest.mark.parametrize("key", ["b", "data", "zzzzz"])
def test_what_is_written_around_bytes_is_what_would_be_written_with_them(key: str, size: int) -> None:
    value = {"_": "Answer", "cc": [1, b"cc", {"data": b""}], "attachment": {"name": "n", "size": size}}
    data = bytes(i % 256 for i in range(size))
    head, tail = encode_around(value, key, size)
    assert head + data + tail == encode({**value, key: data})


@pytest.mark.parametrize("size", [0, 23, 65_536])
def test_what_is_written_around_text_further_in_is_what_would_be_written_with_it(size: int) -> None:
    file = {"path": "a", "zz": 1, "content": ""}
    content = "\u00e9" * (size // 2) + "x" * (size % 2)
    head, tail = encode_around({"_": "Answer", "file": file, "z": "z"}, "file.content", size, text=True)
    assert head + content.encode() + tail == encode({"_": "Answer", "file": {**file, "content": content}, "z": "z"})
