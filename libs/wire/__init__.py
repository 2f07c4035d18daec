"""The signed wire format: DAG-CBOR, principals, Ed25519, envelopes, capabilities and CIDs.

Imports no other library of ours.
"""

from .capability import Capability, sign_capability, verify_capability
from .cbor import (
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_SAFE_INTEGER,
    DecodeError,
    EncodeError,
    canonical,
    decode,
    encode,
    encode_around,
)
from .cids import DAG_CBOR, DAG_PB, RAW, CidError, Link, check_cid, cid_bytes, cid_dag_cbor, cid_from_text, cid_text
from .envelope import (
    DEFAULT_SKEW_MS,
    PROTOCOL_TOO_OLD,
    Envelope,
    EnvelopeError,
    sign_envelope,
    sign_map,
    signed_bytes,
    verify_envelope,
)
from .keys import SEED_BYTES, SIGNATURE_BYTES, Key, verify
from .principals import (
    PRINCIPAL_BYTES,
    PrincipalError,
    account_id,
    is_account_id,
    is_principal,
    parse_principal,
    principal,
    principal_from_id,
)

__all__ = [
    "DAG_CBOR",
    "DAG_PB",
    "DEFAULT_SKEW_MS",
    "MAX_DEPTH",
    "MAX_ITEMS",
    "MAX_SAFE_INTEGER",
    "PRINCIPAL_BYTES",
    "PROTOCOL_TOO_OLD",
    "RAW",
    "SEED_BYTES",
    "SIGNATURE_BYTES",
    "Capability",
    "CidError",
    "DecodeError",
    "EncodeError",
    "Envelope",
    "EnvelopeError",
    "Key",
    "Link",
    "PrincipalError",
    "account_id",
    "canonical",
    "check_cid",
    "cid_bytes",
    "cid_dag_cbor",
    "cid_from_text",
    "cid_text",
    "decode",
    "encode",
    "encode_around",
    "is_account_id",
    "is_principal",
    "parse_principal",
    "principal",
    "principal_from_id",
    "sign_capability",
    "sign_envelope",
    "sign_map",
    "signed_bytes",
    "verify",
    "verify_capability",
    "verify_envelope",
]
