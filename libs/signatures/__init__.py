"""The signature behind an internal call, on its way from the edge to the transaction that acts on it.

The edge gives it to the owner with the call: `libs.rpc` carries it and binds it there, `libs.store` records it with the
effect. So a captured envelope acts once although what the edges remember is lost, and nothing between has to know.
"""

from __future__ import annotations

import hashlib
import os
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

__all__ = ["SignedCall", "bind", "current", "forwarded", "header", "key_of", "leave_unrecorded", "sealed", "unsealed"]

_NONCE: Final = bindings.crypto_aead_xchacha20poly1305_ietf_NPUBBYTES


@dataclass(slots=True)
class SignedCall:
    """A call that a signed, mutating action caused.

    `hash` is the SHA-256 of the envelope's signature, `account` the acting one, `expires_at` the time in Unix
    milliseconds from which on the envelope is refused for its age. `key` (32 bytes) follows from the signature alone:
    whoever does not have the envelope cannot know it. `recorded` once a transaction has taken the signature, `repeated`
    once one has found that it acted before.
    """

    hash: bytes
    account: str
    expires_at: int
    key: bytes = field(default=b"", repr=False)
    recorded: bool = False
    repeated: bool = False


_KEY_OF = b"seed-agents answer key"
_call: ContextVar[SignedCall | None] = ContextVar("signed_call", default=None)


def header(signature: bytes, expires_at: int) -> str:
    """What travels: the signature's hash, its end (Unix milliseconds) and the key that follows from it."""
    return f"{hashlib.sha256(signature).hexdigest()}.{expires_at}.{key_of(signature).hex()}"


def key_of(signature: bytes) -> bytes:
    """The key that follows from a signature, and that its hash does not give away."""
    return hashlib.sha256(_KEY_OF + signature).digest()


def sealed(key: bytes, data: bytes, place: bytes = b"") -> bytes:
    """`data` under a signature's key, for nobody who does not have the envelope (XChaCha20-Poly1305)."""
    nonce = os.urandom(_NONCE)
    return nonce + bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(data, place, nonce, key)


def unsealed(key: bytes, box: bytes, place: bytes = b"") -> bytes | None:
    """What was sealed under this key for this place; None for anything else."""
    nonce, rest = box[:_NONCE], box[_NONCE:]
    try:
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(rest, place, nonce, key)
    except (CryptoError, ValueError, TypeError):
        return None


def forwarded() -> str:
    """The header of the call this task serves, for another service that acts on it; empty when no signed action did."""
    call = _call.get()
    return "" if call is None else f"{call.hash.hex()}.{call.expires_at}.{call.key.hex()}"


def bind(value: str, account: str) -> None:
    """Let what runs in this task from here on be of the call that `header` described.

    Raises ValueError for what `header` did not make.
    """
    digest, expires_at, key = value.split(".")
    _call.set(SignedCall(bytes.fromhex(digest), account, int(expires_at), bytes.fromhex(key)))


def leave_unrecorded() -> None:
    """The call this task serves acts once by itself, for good, whoever repeats it: its signature need not be kept."""
    call = _call.get()
    if call is not None:
        call.recorded = True


def current() -> SignedCall | None:
    """The call this task serves; None when no signed action caused it."""
    return _call.get()
