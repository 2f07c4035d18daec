"""Principals: the 34-byte name of an Ed25519 key, and its text form, the account or signer id."""

from functools import lru_cache
from typing import Final, TypeGuard

import libipld

PRINCIPAL_BYTES: Final = 34
PUBLIC_KEY_BYTES: Final = 32

_PREFIX: Final = b"\xed\x01"
_ID_LENGTH: Final = 48


class PrincipalError(ValueError):
    """Not the principal of an Ed25519 key."""


def principal(public_key: bytes) -> bytes:
    """The principal of a 32-byte Ed25519 public key; raises `PrincipalError`."""
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise PrincipalError("a public key has 32 bytes")
    return _PREFIX + public_key


def is_principal(value: object) -> TypeGuard[bytes]:
    """Is it bytes of the right length and prefix?"""
    return isinstance(value, bytes) and len(value) == PRINCIPAL_BYTES and value[:2] == _PREFIX


def parse_principal(value: object) -> bytes:
    """The 32-byte public key in a principal; raises `PrincipalError`."""
    if not is_principal(value):
        raise PrincipalError("not an Ed25519 principal")
    return value[2:]


@lru_cache(maxsize=16384)
def account_id(principal_bytes: bytes) -> str:
    """The text form (multibase base58btc, `z6Mk…`) of a principal; raises `PrincipalError`."""
    if not is_principal(principal_bytes):
        raise PrincipalError("not an Ed25519 principal")
    return libipld.encode_multibase("z", principal_bytes)


@lru_cache(maxsize=16384)
def principal_from_id(text: str) -> bytes:
    """The principal that an account or signer id names, in its canonical text only; raises `PrincipalError`."""
    # The length is checked first: decoding base58 takes time quadratic in it.
    if len(text) != _ID_LENGTH or text[0] != "z" or not text.isascii():
        raise PrincipalError("not an account id")
    try:
        value = libipld.decode_multibase(text)[1]
    except ValueError as e:
        raise PrincipalError("not base58") from e
    if not is_principal(value) or libipld.encode_multibase("z", value) != text:
        raise PrincipalError("not an account id")
    return value


def is_account_id(value: object) -> bool:
    """Is it the canonical text form of a principal?"""
    if not isinstance(value, str):
        return False
    try:
        principal_from_id(value)
    except PrincipalError:
        return False
    return True
