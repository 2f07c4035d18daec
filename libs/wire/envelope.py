"""Signed action envelopes: the checks in their fixed order (envelope.md, section 3), and signing."""

import time
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

import msgspec

from .cbor import MAX_DEPTH, MAX_SAFE_INTEGER, DecodeError, decode_noting_form, encode
from .keys import SIGNATURE_BYTES, Key, verify
from .principals import account_id, is_principal

ENVELOPE_TYPE: Final = "AgentsAction"
DEFAULT_SKEW_MS: Final = 300_000
PROTOCOL_TOO_OLD: Final = "protocol_too_old"

_ZERO_SIGNATURE: Final = bytes(SIGNATURE_BYTES)
_SIGNATURE_ENTRY: Final = b"\x63sig\x58\x40"
_LARGEST_PROTOCOL: Final = (1 << 31) - 1


class EnvelopeError(Exception):
    """A refused envelope: the HTTP status, the public message and, for status 426, the error code."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A verified envelope. Whether the signer may act for the account is for the caller to check (step 12)."""

    account: str
    """Id of the acting account."""
    signer: str
    """Id of the key that signed."""
    account_principal: bytes
    signer_principal: bytes
    sig: bytes
    protocol: int
    """Version the client speaks, at least 1."""
    ts: int | float
    """The client's clock, epoch milliseconds."""
    name: str
    """The action's name, its `_`."""
    action: dict[str, Any]
    """The action as decoded, unknown keys included."""
    raw: dict[str, Any]
    """The whole envelope as decoded."""


def verify_envelope(
    body: bytes,
    *,
    now_ms: float,
    skew_ms: float = DEFAULT_SKEW_MS,
    min_protocol: int = 1,
    max_depth: int = MAX_DEPTH,
) -> Envelope:
    """Steps 2 to 11 of envelope.md section 3 on a request body or WebSocket frame.

    `now_ms` is the server's clock in epoch milliseconds, `skew_ms` the distance allowed either way, inclusive.
    Raises `EnvelopeError` with the status and the exact message of the first check that fails.
    """
    try:
        raw, canonical = decode_noting_form(body, max_depth=max_depth)
    except DecodeError as e:
        raise EnvelopeError(400, "Invalid CBOR request") from e
    protocol = _protocol(raw)
    if protocol < min_protocol:
        raise EnvelopeError(
            426,
            f"Please update your app: this server needs protocol {min_protocol} or newer, yours speaks {protocol}",
            PROTOCOL_TOO_OLD,
        )
    if not isinstance(raw, (dict, list)):
        raise EnvelopeError(401, "Invalid envelope")
    if isinstance(raw, list) or raw.get("type") != ENVELOPE_TYPE:
        raise EnvelopeError(401, "Invalid envelope type")
    signer = raw.get("signer")
    if not is_principal(signer):
        raise EnvelopeError(401, "Invalid signer")
    account = raw.get("account")
    if not is_principal(account):
        raise EnvelopeError(401, "Invalid account")
    sig = raw.get("sig")
    if not isinstance(sig, bytes) or len(sig) != SIGNATURE_BYTES:
        raise EnvelopeError(401, "Invalid signature bytes")
    action = raw.get("action")
    if not isinstance(action, dict) or not isinstance(name := action.get("_"), str):
        raise EnvelopeError(401, "Invalid action")
    ts = action.get("ts")
    if not _is_number(ts):
        raise EnvelopeError(401, "Invalid action timestamp")
    if abs(now_ms - ts) > skew_ms:
        raise EnvelopeError(401, "Action timestamp is outside allowed window")
    if not verify(signer[2:], _signed_message(body, raw, canonical), sig):
        raise EnvelopeError(401, "Invalid signature")
    return Envelope(
        account=account_id(account),
        signer=account_id(signer),
        account_principal=account,
        signer_principal=signer,
        sig=sig,
        protocol=protocol,
        ts=ts,
        name=name,
        action=action,
        raw=raw,
    )


def sign_envelope(
    key: Key,
    action: Mapping[str, Any],
    account: bytes | None = None,
    protocol: int | None = 3,
    ts: float | None = None,
) -> bytes:
    """The DAG-CBOR of an envelope around `action`, signed by `key`.

    `account` is the principal acted for, by default the key's own. `protocol` None leaves the key out. `ts` (epoch
    milliseconds) goes into the action unless that has one; by default it is the clock.
    """
    stamped = dict(action)
    if ts is not None or "ts" not in stamped:
        stamped["ts"] = int(time.time() * 1000) if ts is None else ts
    unsigned: dict[str, Any] = {
        "type": ENVELOPE_TYPE,
        "signer": key.principal,
        "account": account or key.principal,
        "action": stamped,
    }
    if protocol is not None:
        unsigned["protocol"] = protocol
    return sign_map(key, unsigned)


def sign_map(key: Key, unsigned: Mapping[str, Any]) -> bytes:
    """The DAG-CBOR of a map with `sig` set by the rule of envelope.md section 2; envelopes and capabilities alike."""
    return encode({**unsigned, "sig": key.sign(signed_bytes(unsigned))})


def signed_bytes(value: Mapping[str, Any]) -> bytes:
    """What a signature covers: the canonical encoding of the whole map with `sig` zeroed."""
    return encode({**value, "sig": _ZERO_SIGNATURE})


def _signed_message(body: bytes, raw: dict[str, Any], canonical: bool) -> bytes:
    # `sig` sorts first unless an unknown key is shorter; a map of fewer than 24 entries has a head of one byte.
    if canonical and body[1:7] == _SIGNATURE_ENTRY and body[0] < 0xB8:
        return body[:7] + _ZERO_SIGNATURE + body[71:]
    return signed_bytes(raw)


def _protocol(raw: Any) -> int:
    stated = raw.get("protocol") if isinstance(raw, dict) else None
    if isinstance(stated, int) and not isinstance(stated, bool) and stated >= 1:
        return min(stated, _LARGEST_PROTOCOL)
    return 1


def _is_number(value: Any) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_SAFE_INTEGER
