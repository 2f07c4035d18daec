"""May this body be taken as signed by whom it says? A second opinion: dag-cbor, PyNaCl and the tests' plain reader.

It knows nothing of `libs.wire` but its type for links.
"""

from __future__ import annotations

from typing import Any

import dag_cbor
import nacl.exceptions
import nacl.signing

from libs.wire import Link
from tests.wire.oracle import Refused, read_all

LEVELS = 256
VALUES = 1 << 16
_ED25519 = b"\xed\x01"


def accepts(body: bytes, now_ms: float, skew_ms: float) -> bool:
    """Steps 2 to 11 of the checks on an envelope."""
    try:
        value = read_all(body)
    except (Refused, RecursionError):
        return False
    return _is_envelope(value, now_ms, skew_ms) and _is_signed(value)


def within_limits(body: bytes) -> bool:
    """Is it small and flat enough for a server that bounds what it reads? Only for bodies the reader takes."""
    level, values = [read_all(body)], 1
    for _ in range(LEVELS + 1):
        inner: list[Any] = []
        for x in level:
            if isinstance(x, dict):
                inner += [*x.values()]
                values += 2 * len(x)
            elif isinstance(x, list):
                inner += x
                values += len(x)
        level = inner
        if not level:
            return values <= VALUES
    return False


def _is_envelope(value: Any, now_ms: float, skew_ms: float) -> bool:
    if not isinstance(value, dict) or value.get("type") != "AgentsAction":
        return False
    if not all(_is_bytes(value.get(key), 34, _ED25519) for key in ("signer", "account")):
        return False
    action = value.get("action")
    if not _is_bytes(value.get("sig"), 64) or not isinstance(action, dict) or not isinstance(action.get("_"), str):
        return False
    ts = action.get("ts")
    if isinstance(ts, bool) or not isinstance(ts, int | float) or (isinstance(ts, int) and abs(ts) > 2**53 - 1):
        return False
    return abs(now_ms - ts) <= skew_ms


def _is_bytes(value: Any, size: int, start: bytes = b"") -> bool:
    return isinstance(value, bytes) and len(value) == size and value.startswith(start)


def _is_signed(envelope: dict[str, Any]) -> bool:
    message = _canonical({**envelope, "sig": bytes(64)})
    try:
        nacl.signing.VerifyKey(envelope["signer"][2:]).verify(message, envelope["sig"])
    except (nacl.exceptions.BadSignatureError, nacl.exceptions.CryptoError):
        return False
    return True


def _canonical(value: Any) -> bytes:
    zeros: Any
    if not _holds_link(value):
        return dag_cbor.encode(value)
    if isinstance(value, Link):
        return b"\xd8\x2a" + dag_cbor.encode(b"\0" + value.cid)
    # A container with links: the encodings of its parts after a head, which dag-cbor writes for an equally long one.
    if isinstance(value, list):
        zeros = [0] * len(value)
        head = dag_cbor.encode(zeros)[: -len(value)]
        return head + b"".join(_canonical(x) for x in value)
    zeros = [0] * len(value)
    head = dag_cbor.encode(zeros)[: -len(value)]
    head = bytes((head[0] + 0x20,)) + head[1:]
    keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
    return head + b"".join(dag_cbor.encode(key) + _canonical(value[key]) for key in keys)


def _holds_link(value: Any) -> bool:
    level = [value]
    while level:
        if any(isinstance(x, Link) for x in level):
            return True
        level = [y for x in level if isinstance(x, dict | list) for y in (x.values() if isinstance(x, dict) else x)]
    return False
