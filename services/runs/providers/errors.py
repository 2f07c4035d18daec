"""From whatever a provider or its library raises to one `ProviderError` with the provider's own message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from libs.egress import EgressRefused
from services.runs.providers.contract import ConfigError, ProviderError

PRIVATE_ADDRESS = "Provider base URL points to a private address"
BROKE_OFF = "Model provider broke off its reply"
_UNREACHABLE = "Model provider could not be reached"
_TOO_SLOW = "Model provider did not answer in time"
_MAX_MESSAGE_CHARS = 2000
_RETRYABLE_STATUSES = frozenset((408, 409, 429))


def is_retryable_status(status: int) -> bool:
    """Whether a request refused with this HTTP status may be sent again (runtime.md section 2.5)."""
    return status in _RETRYABLE_STATUSES or status >= 500


def from_response(status: int, body: bytes, retry_after_s: float | None) -> ProviderError:
    """The error of a refused request: the message inside the body, else its text, else the status."""
    return ProviderError(
        _message_of_body(body) or f"Model provider answered HTTP {status}",
        retryable=is_retryable_status(status),
        status=status,
        retry_after_s=retry_after_s,
    )


def from_exception(error: BaseException) -> ProviderError | ConfigError:
    """The error behind an exception, however often a library wrapped it."""
    for cause in _causes(error):
        if isinstance(cause, ProviderError | ConfigError):
            return cause
        if isinstance(cause, EgressRefused):
            return ConfigError(PRIVATE_ADDRESS)
        if isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
            return ConfigError("Provider base URL is invalid")
        if isinstance(cause, httpx2.TimeoutException):
            return ProviderError(_TOO_SLOW, retryable=True)
        if isinstance(cause, httpx2.ConnectError):
            return ProviderError(_UNREACHABLE, retryable=True)
        if isinstance(cause, httpx2.TransportError | httpx2.StreamError):
            return ProviderError(BROKE_OFF, retryable=True)
    # What is left was said inside a stream: the libraries keep the provider's body or message on their exception.
    message = _message_of_value(getattr(error, "body", None)) or getattr(error, "message", None) or str(error)
    status = getattr(error, "status_code", None)
    status = status if isinstance(status, int) else None
    return ProviderError(
        _cut(str(message)) or BROKE_OFF,
        retryable=status is None or is_retryable_status(status),
        status=status,
    )


def redacted(error: ProviderError, secret: str) -> ProviderError:
    """The same error without the API key, which some providers repeat in their message."""
    if len(secret) < 4 or secret not in error.message:
        return error
    return ProviderError(
        error.message.replace(secret, "***"),
        retryable=error.retryable,
        status=error.status,
        retry_after_s=error.retry_after_s,
    )


def retry_after_seconds(value: str | None, now: datetime | None = None) -> float | None:
    """The seconds a Retry-After header asks for (a number or an HTTP date), None when absent or unreadable."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _message_of_body(body: bytes) -> str:
    text = body.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except ValueError:
        # An HTML page of a proxy in between says nothing to a person.
        return "" if text.startswith("<") else _cut(text)
    return _message_of_value(value) or _cut(text)


def _message_of_value(value: Any) -> str:
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, str):
        return _cut(value)
    if not isinstance(value, dict):
        return ""
    for key in ("error", "message", "detail"):
        if message := _message_of_value(value.get(key)):
            return message
    return ""


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_MESSAGE_CHARS else text[:_MAX_MESSAGE_CHARS] + "…"
