"""Unit: the golden envelopes of another implementation, byte for byte in both directions, and the fixed vectors."""

import json

import pytest

from libs.wire import (
    Key,
    canonical,
    cid_dag_cbor,
    decode,
    encode,
    sign_envelope,
    signed_bytes,
    verify,
    verify_capability,
    verify_envelope,
)
from tests.dagjson import VECTORS, from_dag_json, load

GOLDEN = {v["name"]: v for v in json.loads((VECTORS / "envelopes.json").read_text())["vectors"]}


def test_there_are_all_vectors():
    assert len(GOLDEN) == 42


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_envelope_verifies(name: str):
    v = GOLDEN[name]
    body = bytes.fromhex(v["envelope"])
    assert encode(decode(body)) == body

    got = verify_envelope(body, now_ms=v["ts"], skew_ms=0)
    assert signed_bytes(got.raw).hex() == v["signedBytes"]
    assert got.sig.hex() == v["signature"]
    assert (got.signer, got.signer_principal.hex()) == (v["signerPrincipalString"], v["signerPrincipal"])
    assert (got.account, got.account_principal.hex()) == (v["accountPrincipalString"], v["accountPrincipal"])
    assert got.action == canonical({**from_dag_json(v["unsignedAction"]), "ts": v["ts"]})


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_envelope_is_made_the_same(name: str):
    v = GOLDEN[name]
    extra = v.get("extraEnvelopeFields", {})
    action = {**from_dag_json(v["unsignedAction"]), "ts": v["ts"]}
    key, account = Key(bytes.fromhex(v["seed"])), bytes.fromhex(v["accountPrincipal"])
    assert key.principal.hex() == v["signerPrincipal"]

    unsigned = {"type": "AgentsAction", "signer": key.principal, "account": account, "action": action, **extra}
    message = signed_bytes(unsigned)
    assert message.hex() == v["signedBytes"]
    assert key.sign(message).hex() == v["signature"]
    assert encode({**unsigned, "sig": key.sign(message)}).hex() == v["envelope"]
    if not extra:
        assert sign_envelope(key, action, account, protocol=None).hex() == v["envelope"]
    elif isinstance(extra["protocol"], int):
        assert sign_envelope(key, action, account, protocol=extra["protocol"]).hex() == v["envelope"]


def test_lone_surrogate_is_written_as_replacement_character():
    v = GOLDEN["lone-surrogate-becomes-fffd"]
    action = {**v["jsInput"], "title": "bad\ud800end", "ts": v["ts"]}
    assert sign_envelope(Key(bytes.fromhex(v["seed"])), action, protocol=None).hex() == v["envelope"]


def test_documented_vector():
    key = Key(b"\x01" * 32)
    assert key.id == "z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX"
    assert key.principal.hex() == "ed018a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"
    plain = sign_envelope(key, {"_": "ListAgents"}, protocol=None, ts=1767225600000)
    message = signed_bytes(decode(plain))
    assert len(message) == 209
    assert message.hex() == (
        "a5637369675840" + "00" * 64 + "64747970656c4167656e7473416374696f6e66616374696f6ea2615f6a4c6973744167656e7473"
        "6274731b0000019b76daa800667369676e65725822"
        + key.principal.hex()
        + "676163636f756e745822"
        + key.principal.hex()
    )
    assert decode(plain)["sig"].hex() == (
        "fe18050581b79e098563df6c6032b1c5d56d5a9d2ae1dc634024856458867a94"
        "e5171eb0f19d05d02317a159cf67391024ca55ed3a089468bf2e4cd4205cd501"
    )
    third = sign_envelope(key, {"_": "ListAgents"}, protocol=3, ts=1767225600000)
    assert third.endswith(bytes.fromhex("6870726f746f636f6c03"))
    assert decode(third)["sig"].hex() == (
        "c9f5fc9f1fe9129dc2e45af40ef00a0b1dca2a04b57d7a8e3cf4789cde6ca348"
        "466974a1e6e17b32fa274a9fc9829a94d61f4b55d63b9cfa48af02916957b303"
    )


def test_example_capability_verifies():
    blob = load("examples/capability.json")
    got = verify_capability(encode(blob), blob["delegate"])
    assert (got.issuer, got.role) == ("z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX", "AGENT")
    register = load("examples/action-RegisterSigner.json")
    assert register["action"]["capability"] == encode(blob)
    assert verify(register["signer"][2:], signed_bytes(register), register["sig"])


def test_tool_document_vector():
    document = encode(load("examples/tool-document.json"))
    assert cid_dag_cbor(document) == "bafyreigur7tvj4htdw6rf25vtnhcg72jrjrxvtedtwupbnbbho5ry7bczu"
