"""Sealing, the key ring and the vault: what was sealed opens in its place with its key, and nowhere else."""

import asyncio
import base64
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from libs import wire
from services.secrets.domain.keyring import KeyRing, KeyRingError, UnknownKey
from services.secrets.domain.sealing import OVERHEAD, CannotOpen, seal, unseal
from services.secrets.domain.vault import Vault, WrappedKey

keys = st.binary(min_size=32, max_size=32)
texts = st.text(max_size=40)


@given(keys, st.binary(max_size=300), st.binary(max_size=60))
def test_a_box_opens_with_its_key_in_its_place(key: bytes, content: bytes, place: bytes) -> None:
    box = seal(key, content, place)
    assert unseal(key, box, place) == content
    assert len(box) == len(content) + OVERHEAD
    assert seal(key, content, place) != box


@given(keys, keys, st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60))
def test_another_key_or_place_does_not_open_it(key: bytes, other: bytes, content: bytes, a: bytes, b: bytes) -> None:
    assume(key != other and a != b)
    box = seal(key, content, a)
    for wrong_key, wrong_place in ((other, a), (key, b), (other, b)):
        with pytest.raises(CannotOpen):
            unseal(wrong_key, box, wrong_place)


@given(keys, st.binary(max_size=60), st.data())
def test_a_changed_box_does_not_open(key: bytes, content: bytes, data: st.DataObject) -> None:
    box = bytearray(seal(key, content, b"place"))
    at = data.draw(st.integers(0, len(box) - 1))
    box[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CannotOpen):
        unseal(key, bytes(box), b"place")
    with pytest.raises(CannotOpen):
        unseal(key, bytes(box[:at]), b"place")


@given(texts, texts, texts, texts)
def test_places_of_different_names_differ(account: str, name: str, account2: str, name2: str) -> None:
    assume((account, name) != (account2, name2))
    vault = Vault(ring(), 10)
    key = vault.new_key(account)

    async def run() -> None:
        box = await vault.seal(account, name, b"value", key)
        assert await vault.unseal(account, name, box, key) == b"value"
        with pytest.raises(CannotOpen):
            await vault.unseal(account2, name2, box, key)

    asyncio.run(run())


def ring(primary: str = "a", **keys: bytes) -> KeyRing:
    return KeyRing(primary, keys or {"a": bytes(32), "b": bytes(31) + b"\1"})


async def test_a_wrapped_key_opens_only_for_its_account_even_when_it_is_kept() -> None:
    vault = Vault(ring(), 10)
    key = vault.new_key("alice")
    box = await vault.seal("alice", "n", b"v", key)
    with pytest.raises(CannotOpen):
        await vault.unseal("bob", "n", box, key)


async def test_a_key_wrapped_with_an_older_key_of_the_ring_opens() -> None:
    old = Vault(ring("a"), 10)
    key = old.new_key("alice")
    box = await old.seal("alice", "n", b"v", key)
    rotated = Vault(ring("b"), 10)
    assert await rotated.unseal("alice", "n", box, key) == b"v"
    assert (key.key_id, rotated.new_key("alice").key_id) == ("a", "b")
    with pytest.raises(CannotOpen):
        await Vault(ring("b"), 10).unseal("alice", "n", box, WrappedKey("b", key.wrapped))
    with pytest.raises(UnknownKey):
        await Vault(KeyRing("b", {"b": bytes(32)}), 10).unseal("alice", "n", box, key)


async def test_the_cache_of_unwrapped_keys_stays_small() -> None:
    vault = Vault(ring(), 2)
    wrapped = {account: vault.new_key(account) for account in "abc"}
    boxes = {account: await vault.seal(account, "n", account.encode(), key) for account, key in wrapped.items()}
    assert len(vault._open) == 2
    assert {a: await vault.unseal(a, "n", box, wrapped[a]) for a, box in boxes.items()} == {
        a: a.encode() for a in "abc"
    }


def test_a_key_ring_is_read() -> None:
    keys = {"k1": bytes(32), "k2": b"\1" * 32}
    text = json.dumps({"primary": "k2", "keys": {k: base64.b64encode(v).decode() for k, v in keys.items()}})
    read = KeyRing.parse(text)
    assert read.primary == "k2" and {k: read.key(k) for k in keys} == keys and "k1" in read and "k3" not in read
    assert "AAAA" not in repr(read) and "\\x01" not in repr(read)


SHORT = base64.b64encode(bytes(31)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"primary": "a", "keys": {}}',
        '{"primary": 5, "keys": {"a": "x"}}',
        f'{{"primary": "a", "keys": {{"a": "{SHORT}"}}}}',
        '{"primary": "a", "keys": {"a": "not base64!"}}',
        '{"primary": "a", "keys": {"a": 5}}',
        '{"primary": "b", "keys": {"a": "' + base64.b64encode(bytes(32)).decode() + '"}}',
    ],
)
def test_what_is_no_key_ring_is_refused_without_telling_keys(text: str) -> None:
    with pytest.raises(KeyRingError) as e:
        KeyRing.parse(text)
    assert SHORT not in str(e.value) and "not base64!" not in str(e.value)


async def test_places_are_canonical_documents() -> None:
    """What a value is bound to must never change: stored values would not open any more."""
    box = seal(bytes(32), b"v", wire.encode(["secret", "alice", "n"]))
    vault = Vault(KeyRing("a", {"a": bytes(32)}), 1)
    key = WrappedKey("a", seal(bytes(32), bytes(32), wire.encode(["data-key", "alice", "a"])))
    assert await vault.unseal("alice", "n", box, key) == b"v"
