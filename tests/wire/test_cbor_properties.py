"""Property: our decoder, the plain reader of the table in `oracle.py` and the dag-cbor library never disagree."""

from typing import Any

import dag_cbor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.wire import DecodeError, Link, canonical, cid_bytes, decode, encode
from libs.wire.cbor import decode_noting_form
from tests.wire.oracle import Refused, read_all

quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
mutating = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])

links = st.binary(max_size=40).map(lambda b: Link(cid_bytes(0x71, b)))
texts = st.text(max_size=40)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.integers(-300, 300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**60), 2**60).map(float)
    | texts
    | st.binary(max_size=300)
    | st.binary(min_size=32, max_size=32).map(lambda b: b"\x12\x20" + b)
)
values = st.recursive(
    scalars | links,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=6),
    max_leaves=30,
)

# Pieces that make up encodings no good encoder writes.
PIECES = """
    f7 f93c00 f97e00 fa3fc00000 fb7ff8000000000000 fb3ff0000000000000 fb8000000000000000 fb4340000000000000
    1800 190001 9f ff bf c0 d82a d9002a a0 80 81 a16161 a2616201616101 a2616101616101 a10102 6161 61ff 63eda080 40 5801
    f8ff e0 fe 1bffffffffffffffff 9bffffffffffffffff 5bffffffffffffffff d82a5825000171122000 d82a58230012200000
"""
pieces = st.sampled_from([bytes.fromhex(x) for x in PIECES.split()]) | st.binary(min_size=1, max_size=4)


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    body = bytearray(encode(draw(values)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        kind = draw(st.integers(0, 3))
        if kind == 0 and at < len(body):
            body[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == 1:
            body[at:at] = draw(pieces)
        elif kind == 2:
            del body[at : at + draw(st.integers(1, 3))]
        else:
            piece = draw(pieces)
            body[at : at + len(piece)] = piece
    return bytes(body)


def ours(body: bytes) -> tuple[bool, Any]:
    try:
        return True, decode(body)
    except DecodeError:
        return False, None


def table(body: bytes) -> tuple[bool, Any]:
    try:
        return True, read_all(body)
    except Refused:
        return False, None


def library(body: bytes) -> tuple[bool, Any]:
    try:
        return True, dag_cbor.decode(body)
    except Exception:  # noqa: BLE001 - the library raises more than its own errors on hostile input
        return False, None


def typed(value: Any) -> Any:
    """Equality that tells 1 from 1.0 and from True, and knows the library's CIDs."""
    if isinstance(value, list):
        return [typed(x) for x in value]
    if isinstance(value, dict):
        return {key: typed(x) for key, x in value.items()}
    if isinstance(value, (bool, int, float, str, bytes, Link)) or value is None:
        return type(value).__name__, value
    return "Link", Link(bytes(value))


def without_links(value: Any) -> Any:
    if isinstance(value, Link):
        return value.cid
    if isinstance(value, list):
        return [without_links(x) for x in value]
    return {k: without_links(x) for k, x in value.items()} if isinstance(value, dict) else value


def check(body: bytes) -> None:
    accepted, value = ours(body)
    expected, wanted = table(body)
    assert accepted == expected, body.hex()
    by_library, theirs = library(body)
    if by_library:
        assert accepted, body.hex()
        assert typed(canonical(value)) == typed(canonical(_links(theirs))), body.hex()
    if not accepted:
        return
    assert typed(value) == typed(wanted), body.hex()
    again = encode(value)
    assert typed(decode(again)) == typed(value)
    assert decode_noting_form(body)[1] == (again == body), body.hex()


def _links(value: Any) -> Any:
    if isinstance(value, list):
        return [_links(x) for x in value]
    if isinstance(value, dict):
        return {key: _links(x) for key, x in value.items()}
    return value if isinstance(value, (bool, int, float, str, bytes)) or value is None else Link(bytes(value))


@quick
@given(values)
def test_round_trip(value: Any):
    body = encode(value)
    got = decode(body)
    assert got == value
    assert encode(got) == body
    assert decode_noting_form(body) == (got, True)


@quick
@given(values)
def test_encoder_agrees_with_the_library(value: Any):
    plain = canonical(without_links(value))
    body = encode(plain)
    assert body == dag_cbor.encode(plain)
    check(body)


@mutating
@given(mutants())
def test_mutants(body: bytes):
    check(body)


@mutating
@given(st.binary(max_size=24) | st.lists(pieces, max_size=6).map(b"".join))
def test_any_bytes(body: bytes):
    check(body)


@quick
@given(st.lists(st.tuples(texts, values), unique_by=lambda kv: kv[0], max_size=6), st.randoms(use_true_random=False))
def test_key_order_does_not_matter(entries: list[tuple[str, Any]], random: Any):
    random.shuffle(entries)
    body = bytes((0xA0 | len(entries),)) + b"".join(encode(k) + encode(v) for k, v in entries)
    assert encode(decode(body)) == encode(dict(entries))
