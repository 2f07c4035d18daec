"""The capability a delegate hands in with RegisterSigner (envelope.md, section 4)."""

from typing import Any, Final

import msgspec

from .cbor import DecodeError, decode
from .envelope import EnvelopeError, sign_map, signed_bytes
from .keys import SIGNATURE_BYTES, Key, verify
from .principals import account_id, is_principal

CAPABILITY_TYPE: Final = "Capability"
_SIGNING_ROLES: Final = ("AGENT", "WRITER")


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """A verified delegation: `issuer` lets `delegate` sign its actions."""

    issuer: str
    """Account id of the delegating account."""
    delegate: str
    """Id of the key that may sign for it."""
    role: str
    """`AGENT` or `WRITER`; both register as AGENT."""
    proof: bytes
    """The bytes that were verified."""


def verify_capability(capability: object, envelope_signer: bytes) -> Capability:
    """Check the `capability` of a RegisterSigner action against the principal that signed the envelope.

    Raises `EnvelopeError` (status 400) with the first of the nine messages of envelope.md section 4 that applies.
    """
    if not isinstance(capability, bytes) or not capability:
        raise EnvelopeError(400, "Invalid capability bytes")
    try:
        blob: Any = decode(capability)
    except DecodeError as e:
        raise EnvelopeError(400, "Capability is not valid CBOR") from e
    if not isinstance(blob, dict) or blob.get("type") != CAPABILITY_TYPE:
        raise EnvelopeError(400, "Blob is not a Capability")
    issuer = blob.get("signer")
    if not is_principal(issuer):
        raise EnvelopeError(400, "Invalid capability signer")
    delegate = blob.get("delegate")
    if not is_principal(delegate):
        raise EnvelopeError(400, "Invalid capability delegate")
    sig = blob.get("sig")
    if not isinstance(sig, bytes) or len(sig) != SIGNATURE_BYTES or not verify(issuer[2:], signed_bytes(blob), sig):
        raise EnvelopeError(400, "Invalid capability signature")
    if delegate != envelope_signer:
        raise EnvelopeError(400, "Capability delegate does not match envelope signer")
    role = blob.get("role")
    if role not in _SIGNING_ROLES:
        raise EnvelopeError(400, "Capability role does not permit agent actions")
    if issuer == delegate:
        raise EnvelopeError(400, "Capability delegates to its own issuer")
    return Capability(issuer=account_id(issuer), delegate=account_id(delegate), role=role, proof=capability)


def sign_capability(issuer: Key, delegate: bytes, *, ts: float, role: str = "AGENT", label: str | None = None) -> bytes:
    """A capability blob in which `issuer` lets the principal `delegate` sign for it. `ts` is epoch milliseconds."""
    unsigned: dict[str, Any] = {
        "type": CAPABILITY_TYPE,
        "signer": issuer.principal,
        "delegate": delegate,
        "role": role,
        "ts": ts,
    }
    if label is not None:
        unsigned["label"] = label
    return sign_map(issuer, unsigned)
