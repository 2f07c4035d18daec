"""Sealing bytes under a key so that they open only with that key and in that place.

XChaCha20-Poly1305 with the place as associated data. The cipher alone does not commit to its key (one box may be made
to open under two), so each box gets a key of its own, derived from the key, the nonce and the place, and carries a
commitment from the same derivation, which is checked first.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

KEY_BYTES: Final = bindings.crypto_aead_xchacha20poly1305_ietf_KEYBYTES
OVERHEAD: Final = 1 + 24 + 32 + 16
"""Bytes a box is longer than its content: version, nonce, commitment, authenticator."""

_VERSION: Final = b"\x01"
_NONCE_BYTES: Final = bindings.crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
_COMMITMENT_BYTES: Final = 32
_PERSON: Final = b"seed-secrets-v1"


class CannotOpen(Exception):
    """The box was made with another key, for another place, or has been changed."""


def seal(key: bytes, content: bytes, place: bytes) -> bytes:
    """A box of `content` that opens only with the 32-byte `key` and for the same `place`."""
    nonce = os.urandom(_NONCE_BYTES)
    box_key, commitment = _derive(key, nonce, place)
    boxed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(content, place, nonce, box_key)
    return _VERSION + nonce + commitment + boxed


def unseal(key: bytes, box: bytes, place: bytes) -> bytes:
    """The content of a box. Raises CannotOpen."""
    if len(box) < OVERHEAD or box[:1] != _VERSION:
        raise CannotOpen("not a sealed box")
    nonce, rest = box[1 : 1 + _NONCE_BYTES], box[1 + _NONCE_BYTES :]
    box_key, commitment = _derive(key, nonce, place)
    if not hmac.compare_digest(commitment, rest[:_COMMITMENT_BYTES]):
        raise CannotOpen("another key or another place")
    try:
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(rest[_COMMITMENT_BYTES:], place, nonce, box_key)
    except CryptoError:
        raise CannotOpen("changed since it was sealed") from None


def _derive(key: bytes, nonce: bytes, place: bytes) -> tuple[bytes, bytes]:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    both = hashlib.blake2b(nonce + place, key=key, person=_PERSON, digest_size=KEY_BYTES + _COMMITMENT_BYTES).digest()
    return both[:KEY_BYTES], both[KEY_BYTES:]
