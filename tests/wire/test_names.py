"""Unit: principals, account ids, keys and CIDs."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.wire import (
    RAW,
    CidError,
    Key,
    Link,
    PrincipalError,
    account_id,
    check_cid,
    cid_bytes,
    cid_from_text,
    cid_text,
    is_account_id,
    parse_principal,
    principal,
    principal_from_id,
    verify,
)

KEY = Key(b"\x01" * 32)


@given(st.binary(min_size=32, max_size=32))
def test_account_id_round_trip(public_key: bytes):
    text = account_id(principal(public_key))
    assert text.startswith("z6Mk")
    assert principal_from_id(text) == principal(public_key)
    assert parse_principal(principal_from_id(text)) == public_key
    assert is_account_id(text)


NOT_IDS = [
    "",
    "z",
    "z6Mk",
    KEY.id[:-1],
    KEY.id + "1",
    "z1" + KEY.id[1:],
    KEY.id.lower(),
    " " + KEY.id,
    KEY.id + "\n",
    KEY.id[:-1] + "0",
    KEY.id[:-1] + "é",
    "f" + KEY.principal.hex(),
    "u" + KEY.id[1:],
    "z" * 48,
    "z" + "1" * 47,
    "z" * 1_000_000,
]


@pytest.mark.parametrize("text", NOT_IDS)
def test_not_an_account_id(text: str):
    assert not is_account_id(text)
    with pytest.raises(PrincipalError):
        principal_from_id(text)


@pytest.mark.parametrize("value", [None, 5, KEY.principal, [KEY.id]])
def test_account_id_is_text(value: object):
    assert not is_account_id(value)


@pytest.mark.parametrize(
    "value", [None, "x", b"", KEY.principal[:-1], KEY.principal + b"\0", b"\xec" + KEY.principal[1:]]
)
def test_not_a_principal(value: object):
    with pytest.raises(PrincipalError):
        parse_principal(value)


def test_account_id_of_no_principal():
    with pytest.raises(PrincipalError):
        account_id(KEY.public_key)
    with pytest.raises(PrincipalError):
        principal(KEY.principal)


@given(st.binary(max_size=200))
def test_signatures(message: bytes):
    signature = KEY.sign(message)
    assert verify(KEY.public_key, message, signature)
    assert not verify(KEY.public_key, message + b"\0", signature)
    assert not verify(Key(b"\x02" * 32).public_key, message, signature)
    assert not verify(KEY.public_key, message, signature[:-1])
    assert not verify(KEY.public_key[:-1], message, signature)


def test_rfc_8032_vector():
    key = Key(bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7"))
    assert key.public_key.hex() == "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"
    assert key.sign(bytes.fromhex("af82")).hex() == (
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    )


def test_key_does_not_show_its_seed():
    key = Key.generate()
    assert Key(key.seed).id == key.id
    assert key.seed.hex() not in repr(key)
    assert repr(key) == f"Key({key.id})"
    assert Key.generate().seed != key.seed
    with pytest.raises(ValueError, match="32 bytes"):
        Key(b"short")


def test_known_cids():
    assert cid_text(cid_bytes(RAW, b"")) == "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
    assert cid_text(b"\x12\x20" + hashlib.sha256(b"").digest()).startswith("Qm")


@given(st.binary(max_size=50), st.sampled_from([0x55, 0x70, 0x71]))
def test_cid_round_trip(data: bytes, codec: int):
    cid = cid_bytes(codec, data)
    check_cid(cid)
    assert cid_from_text(cid_text(cid)) == cid
    assert Link.parse(str(Link(cid))) == Link(cid)
    assert hash(Link.parse(str(Link(cid)))) == hash(Link(cid))


CID = cid_text(cid_bytes(RAW, b"x"))


@pytest.mark.parametrize(
    "text", ["", "b", "b1", CID[1:], CID.upper(), CID + "=", CID[:-1], CID + "a", "bé", "z" + CID[1:], "b" * 10_000]
)
def test_not_a_cid(text: str):
    with pytest.raises(CidError):
        cid_from_text(text)
