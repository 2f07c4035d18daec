"""Unit: the nine refusals of a capability, in order (envelope.md, section 4)."""

from typing import Any

import pytest

from libs.wire import EnvelopeError, Key, decode, encode, sign_capability, sign_map, verify_capability

ISSUER, DELEGATE, THIRD = Key(b"\x01" * 32), Key(b"\x02" * 32), Key(b"\x03" * 32)


def blob(**changes: Any) -> dict[str, Any]:
    base = {"type": "Capability", "signer": ISSUER.principal, "delegate": DELEGATE.principal, "role": "AGENT", "ts": 1}
    return {**base, **changes}


def refused(capability: Any, signer: Key = DELEGATE) -> str:
    with pytest.raises(EnvelopeError) as caught:
        verify_capability(capability, signer.principal)
    assert caught.value.status == 400
    assert caught.value.code is None
    return caught.value.message


@pytest.mark.parametrize("role", ["AGENT", "WRITER"])
def test_accepted(role: str):
    proof = sign_capability(ISSUER, DELEGATE.principal, ts=1, role=role, label="web")
    got = verify_capability(proof, DELEGATE.principal)
    assert (got.issuer, got.delegate, got.role, got.proof) == (ISSUER.id, DELEGATE.id, role, proof)


def test_unknown_keys_are_covered_by_the_signature():
    proof = sign_map(ISSUER, blob(path="/a", audience=THIRD.principal, zzz=1))
    assert verify_capability(proof, DELEGATE.principal).issuer == ISSUER.id
    assert refused(encode({**decode(proof), "zzz": 2})) == "Invalid capability signature"


@pytest.mark.parametrize("value", [b"", None, "text", [1], 5])
def test_not_bytes(value: Any):
    assert refused(value) == "Invalid capability bytes"


@pytest.mark.parametrize("value", [b"\xff", b"\xa0\x00", b"\x81" * 500])
def test_not_cbor(value: bytes):
    assert refused(value) == "Capability is not valid CBOR"


@pytest.mark.parametrize("value", [None, [], {}, "x", {"type": "capability"}])
def test_not_a_capability(value: Any):
    assert refused(encode(value)) == "Blob is not a Capability"


def test_the_first_broken_rule_decides():
    broken: dict[str, Any] = {"type": "Capability", "signer": b"", "delegate": b"", "role": "READER", "sig": b""}
    assert refused(encode(broken)) == "Invalid capability signer"
    broken["signer"] = ISSUER.principal
    assert refused(encode(broken)) == "Invalid capability delegate"
    broken["delegate"] = ISSUER.principal
    assert refused(encode(broken)) == "Invalid capability signature"
    broken["sig"] = bytes(64)
    assert refused(encode(broken)) == "Invalid capability signature"
    assert refused(sign_map(ISSUER, blob(delegate=ISSUER.principal, role="READER"))) == (
        "Capability delegate does not match envelope signer"
    )
    assert refused(sign_map(ISSUER, blob(delegate=ISSUER.principal, role="READER")), ISSUER) == (
        "Capability role does not permit agent actions"
    )
    assert refused(sign_map(ISSUER, blob(delegate=ISSUER.principal)), ISSUER) == (
        "Capability delegates to its own issuer"
    )


@pytest.mark.parametrize("role", [None, "OWNER", "agent", 5, ["AGENT"]])
def test_role_must_permit_agent_actions(role: Any):
    assert refused(sign_map(ISSUER, blob(role=role))) == "Capability role does not permit agent actions"


def test_signed_by_somebody_else():
    assert refused(sign_map(THIRD, blob())) == "Invalid capability signature"
