"""Secrets of webhooks and what a delivery is (triggers.md, section 7).

A secret is made of the trigger, a nonce of its row and a key that is not in the database, so it can be shown again to
those who may edit, and what is stored does not tell it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

import msgspec

from libs.errors import Invalid
from libs.protocol.text import required_text
from services.triggers.domain.firing import Activation

_NONCE_BYTES = 16
SUMMARY = "Webhook delivery"


class WebhookSecrets:
    """Makes and compares secrets. `key` is the deployment's; without one it is made from `internal_key`."""

    def __init__(self, key: str, internal_key: str) -> None:
        self._key = key.encode() or hmac.digest(internal_key.encode(), b"seed-agents webhooks", "sha256")

    def secret(self, trigger_id: str, nonce: bytes) -> str:
        """43 URL-safe characters."""
        made = hmac.digest(self._key, trigger_id.encode() + b"\0" + nonce, "sha256")
        return base64.urlsafe_b64encode(made).rstrip(b"=").decode()

    def is_secret(self, trigger_id: str, nonce: bytes, given: str) -> bool:
        """Whether `given` is the secret, in constant time."""
        return hmac.compare_digest(self.secret(trigger_id, nonce).encode(), given.encode("utf-8", "replace"))


def new_nonce() -> bytes:
    """What the secret of a new webhook differs in."""
    return secrets.token_bytes(_NONCE_BYTES)


def delivery(body: bytes, idempotency_key: str, new_id: str) -> Activation:
    """What a delivery is to a trigger. Raises Invalid for a body that is not JSON, or a key that is too long.

    `new_id` stands for the key of a delivery that has none.
    """
    try:
        payload = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise Invalid("The body must be JSON") from None
    key, digest = new_id, None
    if idempotency_key:
        key, digest = required_text(idempotency_key, "Idempotency key"), hashlib.sha256(body).digest()
    return Activation(
        key=f"webhook:{key}",
        event={"type": "webhook", "payload": payload},
        summary=SUMMARY,
        activity_key=f"webhook:{key}",
        digest=digest,
    )
