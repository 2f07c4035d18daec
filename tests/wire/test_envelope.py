"""Unit: the checks of an envelope, their order and their words (envelope.md, sections 3 and 5)."""

from collections.abc import Callable
from typing import Any

import pytest

from libs.wire import EnvelopeError, Key, Link, cid_bytes, decode, encode, sign_envelope, sign_map, verify_envelope

NOW = 1_767_225_600_000
KEY, OTHER = Key(b"\x01" * 32), Key(b"\x02" * 32)
SKEW = "Action timestamp is outside allowed window"
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493


def envelope(action: dict[str, Any] | None = None, **extra: Any) -> dict[str, Any]:
    """A signed envelope as a map."""
    unsigned = {
        "type": "AgentsAction",
        "signer": KEY.principal,
        "account": KEY.principal,
        "action": {"_": "ListAgents", "ts": NOW, **(action or {})},
        **extra,
    }
    return decode(sign_map(KEY, unsigned))


def refused(body: Any, **how: Any) -> tuple[int, str, str | None]:
    data = body if isinstance(body, bytes) else encode(body)
    with pytest.raises(EnvelopeError) as caught:
        verify_envelope(data, **{"now_ms": NOW, **how})
    return caught.value.status, caught.value.message, caught.value.code


def test_accepted_envelope_says_who_and_what():
    body = sign_envelope(KEY, {"_": "GetAgent", "agentId": "a"}, OTHER.principal, ts=NOW + 5)
    got = verify_envelope(body, now_ms=NOW)
    assert (got.account, got.signer) == (OTHER.id, KEY.id)
    assert (got.account_principal, got.signer_principal) == (OTHER.principal, KEY.principal)
    assert (got.name, got.action, got.ts, got.protocol) == (
        "GetAgent",
        {"_": "GetAgent", "agentId": "a", "ts": NOW + 5},
        NOW + 5,
        3,
    )
    assert got.raw == decode(body)
    assert got.sig == got.raw["sig"]


@pytest.mark.parametrize("body", [b"", b"\xff", b"\xa1", encode({}) + b"\0", b"\x81" * 1000])
def test_not_cbor(body: bytes):
    assert refused(body) == (400, "Invalid CBOR request", None)


@pytest.mark.parametrize("body", [None, 5, 1.5, "x", True, b"x", Link(cid_bytes(0x71, b""))])
def test_no_map(body: Any):
    assert refused(encode(body)) == (401, "Invalid envelope", None)


@pytest.mark.parametrize("body", [[], {}, [1], {"a": 1}, {"type": None}, {"type": "Nope"}, {"type": b"AgentsAction"}])
def test_no_envelope(body: Any):
    assert refused(body) == (401, "Invalid envelope type", None)


def without(key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda e: {k: v for k, v in e.items() if k != key}


def with_(key: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda e: {**e, key: value}


def acting(**action: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda e: {**e, "action": {**e["action"], **action}}


BAD = {
    "signer missing": (without("signer"), "Invalid signer"),
    "signer short": (with_("signer", KEY.principal[:33]), "Invalid signer"),
    "signer long": (with_("signer", KEY.principal + b"\0"), "Invalid signer"),
    "signer of another codec": (with_("signer", b"\xe7\x01" + KEY.public_key), "Invalid signer"),
    "signer as bare key": (with_("signer", KEY.public_key), "Invalid signer"),
    "signer as text": (with_("signer", KEY.id), "Invalid signer"),
    "account missing": (without("account"), "Invalid account"),
    "account null": (with_("account", None), "Invalid account"),
    "account short": (with_("account", KEY.principal[:33]), "Invalid account"),
    "sig missing": (without("sig"), "Invalid signature bytes"),
    "sig short": (with_("sig", bytes(63)), "Invalid signature bytes"),
    "sig long": (with_("sig", bytes(65)), "Invalid signature bytes"),
    "sig as list": (with_("sig", [0] * 64), "Invalid signature bytes"),
    "action missing": (without("action"), "Invalid action"),
    "action null": (with_("action", None), "Invalid action"),
    "action as text": (with_("action", "ListAgents"), "Invalid action"),
    "action as array": (with_("action", []), "Invalid action"),
    "action without name": (with_("action", {"ts": NOW}), "Invalid action"),
    "action with numeric name": (acting(_=5), "Invalid action"),
    "ts missing": (with_("action", {"_": "ListAgents"}), "Invalid action timestamp"),
    "ts as text": (acting(ts="1"), "Invalid action timestamp"),
    "ts null": (acting(ts=None), "Invalid action timestamp"),
    "ts as bool": (acting(ts=True), "Invalid action timestamp"),
    "ts beyond 2^53": (acting(ts=2**60), "Invalid action timestamp"),
    "ts below -2^53": (acting(ts=-(2**60)), "Invalid action timestamp"),
    "ts far ahead as float": (acting(ts=1e21), SKEW),
    "ts negative": (acting(ts=-5), SKEW),
    "ts zero": (acting(ts=0), SKEW),
    "sig of zeros": (with_("sig", bytes(64)), "Invalid signature"),
    "action changed": (acting(x=1), "Invalid signature"),
    "ts changed": (acting(ts=NOW + 1), "Invalid signature"),
    "account changed": (with_("account", OTHER.principal), "Invalid signature"),
    "signer changed": (with_("signer", OTHER.principal), "Invalid signature"),
    "key added": (with_("zzz", 1), "Invalid signature"),
    "short key added": (with_("a", 1), "Invalid signature"),
    "protocol added": (with_("protocol", 3), "Invalid signature"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_shape(name: str):
    change, message = BAD[name]
    assert refused(change(envelope())) == (401, message, None)


def test_the_first_broken_rule_decides():
    body: dict[str, Any] = {"type": "x", "signer": b"", "account": b"", "sig": b"", "action": None, "protocol": 1}
    assert refused(body, min_protocol=2)[0] == 426
    steps: list[tuple[dict[str, Any], str]] = [
        ({}, "Invalid envelope type"),
        ({"type": "AgentsAction"}, "Invalid signer"),
        ({"signer": KEY.principal}, "Invalid account"),
        ({"account": KEY.principal}, "Invalid signature bytes"),
        ({"sig": bytes(64)}, "Invalid action"),
        ({"action": {"_": "GetAgent", "ts": "x"}}, "Invalid action timestamp"),
        ({"action": {"_": "GetAgent", "ts": 5}}, SKEW),
        ({"action": {"_": "GetAgent", "ts": NOW}}, "Invalid signature"),
    ]
    for change, message in steps:
        body = {**body, **change}
        assert refused(body) == (401, message, None)
    del body["sig"]
    assert verify_envelope(sign_map(KEY, body), now_ms=NOW).name == "GetAgent"


@pytest.mark.parametrize("offset", [-300_000, 300_000, 0.5, -299_999.5])
def test_clock_window_is_inclusive(offset: float):
    assert verify_envelope(encode(envelope({"ts": NOW + offset})), now_ms=NOW).ts == NOW + offset


@pytest.mark.parametrize("offset", [-300_001, 300_001, 300_000.5])
def test_outside_the_clock_window(offset: float):
    assert refused(envelope({"ts": NOW + offset})) == (401, SKEW, None)


def test_clock_window_is_a_setting():
    assert refused(envelope({"ts": NOW - 11}), skew_ms=10) == (401, SKEW, None)
    assert verify_envelope(encode(envelope({"ts": NOW - 10})), now_ms=NOW, skew_ms=10).ts == NOW - 10


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        (1, 1),
        (3, 3),
        (99, 99),
        (0, 1),
        (-4, 1),
        (True, 1),
        (None, 1),
        ("3", 1),
        (2.5, 1),
        (2.0, 2),
        (2**64 - 1, 2**31 - 1),
    ],
)
def test_protocol_is_read_leniently(stated: Any, read: int):
    assert verify_envelope(encode(envelope(protocol=stated)), now_ms=NOW).protocol == read


def test_absent_protocol_is_one():
    assert verify_envelope(encode(envelope()), now_ms=NOW).protocol == 1


@pytest.mark.parametrize("body", [{}, {"protocol": 1}, {"protocol": "9"}, [], None, {"type": 5, "protocol": 2}])
def test_old_protocol_is_refused_before_the_shape(body: Any):
    status, message, code = refused(body, min_protocol=3)
    assert (status, code) == (426, "protocol_too_old")
    assert "update" in message.lower()


def test_new_enough_protocol_goes_on_to_the_shape():
    assert refused({"protocol": 3}, min_protocol=3) == (401, "Invalid envelope type", None)


def test_every_bit_of_the_signature_counts():
    e = envelope({"x": "abc"})
    for at in range(0, 64, 7):
        sig = bytearray(e["sig"])
        sig[at] ^= 1
        assert refused({**e, "sig": bytes(sig)}) == (401, "Invalid signature", None)


def test_malleable_signature_is_refused():
    e = envelope()
    s = int.from_bytes(e["sig"][32:], "little") + GROUP_ORDER
    assert refused({**e, "sig": e["sig"][:32] + s.to_bytes(32, "little")}) == (401, "Invalid signature", None)


def test_small_order_key_signs_nothing():
    """The neutral point with a signature of zeros would satisfy the bare equation for any message."""
    weak = b"\xed\x01" + b"\x01" + bytes(31)
    e = {**envelope(), "signer": weak, "sig": b"\x01" + bytes(63)}
    assert refused(e) == (401, "Invalid signature", None)


def rebuilt(e: dict[str, Any], order: list[str]) -> bytes:
    return bytes((0xA0 | len(order),)) + b"".join(encode(k) + encode(e[k]) for k in order)


def test_keys_in_another_order_verify():
    e = envelope()
    for order in (["type", "account", "action", "sig", "signer"], ["sig", "account", "type", "signer", "action"]):
        assert verify_envelope(rebuilt(e, order), now_ms=NOW).signer == KEY.id


@pytest.mark.parametrize(
    "extra", [{"a": 1}, {"": 1}, {"aaa": bytes(64)}, {"zzz": {"sig": bytes(64)}}, {f"key{i}": i for i in range(40)}]
)
def test_unknown_keys_are_covered_wherever_they_sort(extra: dict[str, Any]):
    assert verify_envelope(encode(envelope(**extra)), now_ms=NOW).raw.items() >= extra.items()


def spliced(value: bytes, covered: Any) -> bytes:
    """An envelope whose action holds `value` as it is, signed over `covered` in its place."""
    marker = "marker-of-the-value"
    e = envelope({"x": covered})
    return encode({**e, "action": {**e["action"], "x": marker}}).replace(encode(marker), value)


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        ("f93e00", 1.5),
        ("fb401c000000000000", 7),
        ("f7", None),
        ("a2626262016161" + "02", {"a": 2, "bb": 1}),
        ("fb8000000000000000", 0),
    ],
)
def test_signature_covers_the_canonical_form(wire: str, value: Any):
    got = verify_envelope(spliced(bytes.fromhex(wire), value), now_ms=NOW)
    assert got.action["x"] == value


@pytest.mark.parametrize("wire", ["f93e00", "fb401c000000000000", "f7", "a262626201616102"])
def test_signature_over_the_received_form_fails(wire: str):
    marker, value = "marker-of-the-value", bytes.fromhex(wire)
    e = envelope({"x": marker})
    message = encode({**e, "sig": bytes(64)}).replace(encode(marker), value)
    body = encode({**e, "sig": KEY.sign(message)}).replace(encode(marker), value)
    assert refused(body) == (401, "Invalid signature", None)


def test_links_and_lookalikes_verify():
    cid = cid_bytes(0x71, b"x")
    got = verify_envelope(
        encode(envelope({"link": Link(cid), "bytes": cid, "old": b"\x12\x20" + bytes(32)})), now_ms=NOW
    )
    assert (got.action["link"], got.action["bytes"]) == (Link(cid), cid)


def test_signing_stamps_with_the_clock_and_keeps_a_given_ts():
    stamped = decode(sign_envelope(KEY, {"_": "X"}))["action"]["ts"]
    assert isinstance(stamped, int)
    assert stamped > NOW
    assert decode(sign_envelope(KEY, {"_": "X", "ts": 5}))["action"]["ts"] == 5
    assert decode(sign_envelope(KEY, {"_": "X", "ts": 5}, ts=6))["action"]["ts"] == 6


def test_signing_does_not_change_the_action():
    action = {"_": "X"}
    sign_envelope(KEY, action)
    assert action == {"_": "X"}
