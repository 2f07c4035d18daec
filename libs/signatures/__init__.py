"""The signature behind an internal call, on its way from the edge to the transaction that acts on it.

The edge gives it to the owner with the call: `libs.rpc` carries it and binds it there, `libs.store` records it with the
effect. So a captured envelope acts once although what the edges remember is lost, and nothing between has to know.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["SignedCall", "bind", "current", "header"]


@dataclass(slots=True)
class SignedCall:
    """A call that a signed, mutating action caused.

    `hash` is the SHA-256 of the envelope's signature, `account` the acting one, `expires_at` the time in Unix
    milliseconds from which on the envelope is refused for its age. `recorded` once a transaction has taken it.
    """

    hash: bytes
    account: str
    expires_at: int
    recorded: bool = False


_call: ContextVar[SignedCall | None] = ContextVar("signed_call", default=None)


def header(signature: bytes, expires_at: int) -> str:
    """What travels: the signature's hash and its end (Unix milliseconds)."""
    return f"{hashlib.sha256(signature).hexdigest()}.{expires_at}"


def bind(value: str, account: str) -> None:
    """Let what runs in this task from here on be of the call that `header` described.

    Raises ValueError for what `header` did not make.
    """
    digest, _, expires_at = value.partition(".")
    _call.set(SignedCall(bytes.fromhex(digest), account, int(expires_at)))


def current() -> SignedCall | None:
    """The call this task serves; None when no signed action caused it."""
    return _call.get()
