"""Ids and idempotency keys as clients send them."""

from __future__ import annotations

import hashlib
from typing import Any

from libs.errors import NotFound
from libs.protocol.text import required_text
from libs.wire import encode

SIGNATURE_KEY = "sig:"
"""Begins the key of a message that has no client id."""


def named(value: str, label: str, noun: str) -> str:
    """An id argument, trimmed.

    Raises Invalid `<label> is required` or `<label> is too large`; NotFound `<noun> not found` for one with NUL, which
    no id has.
    """
    text = required_text(value, label, allow_nul=True)
    if "\0" in text:
        raise NotFound(f"{noun} not found")
    return text


def request_key(value: str) -> str:
    """A client request id, trimmed. Raises Invalid `Client request ID …`."""
    return required_text(value, "Client request ID")


def message_key(client_message_id: str | None, signature_hash: bytes) -> str:
    """Idempotency key of a message: the client's id, else what its signature gives.

    A client id that looks like a signature's key is set apart by its prefix. Raises Invalid `Client message ID …`.
    """
    if client_message_id is None:
        return SIGNATURE_KEY + signature_hash.hex()
    key = required_text(client_message_id, "Client message ID")
    return f"id:{key}" if key.startswith((SIGNATURE_KEY, "id:")) else key


def request_hash(**compared: Any) -> bytes:
    """SHA-256 of the canonical DAG-CBOR of what is compared when a client id comes again (envelope.md, section 7)."""
    return hashlib.sha256(encode(compared)).digest()
