"""Ed25519 (RFC 8032, pure): checking signatures, and the key that makes them."""

from typing import Final

import nacl.bindings
import nacl.exceptions
import nacl.utils

from .principals import account_id, principal

SIGNATURE_BYTES: Final = 64
SEED_BYTES: Final = 32


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Does the 64-byte signature over `message` belong to the 32-byte key? Strict: S >= L and small-order keys fail."""
    if len(signature) != SIGNATURE_BYTES or len(public_key) != 32:
        return False
    try:
        nacl.bindings.crypto_sign_open(signature + message, public_key)
    except (nacl.exceptions.BadSignatureError, nacl.exceptions.CryptoError):
        return False
    return True


class Key:
    """An Ed25519 signing key. Its `repr` shows the id and never the seed."""

    __slots__ = ("_secret", "id", "principal", "public_key")

    def __init__(self, seed: bytes) -> None:
        """From a 32-byte seed; raises ValueError for another length."""
        if len(seed) != SEED_BYTES:
            raise ValueError("a seed has 32 bytes")
        public_key, self._secret = nacl.bindings.crypto_sign_seed_keypair(bytes(seed))
        self.public_key: bytes = public_key
        self.principal = principal(self.public_key)
        self.id = account_id(self.principal)

    @classmethod
    def generate(cls) -> "Key":
        """A new key from the system's random source."""
        return cls(nacl.utils.random(SEED_BYTES))

    @property
    def seed(self) -> bytes:
        """The 32-byte seed. Secret: never log it."""
        return self._secret[:SEED_BYTES]

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature over `message`."""
        return nacl.bindings.crypto_sign(message, self._secret)[:SIGNATURE_BYTES]

    def __repr__(self) -> str:
        return f"Key({self.id})"
