"""Texts that clients send, refused with the public error."""

from __future__ import annotations

from libs.errors import Invalid
from libs.protocol import Invalid as TextInvalid
from libs.protocol import required_text
from libs.protocol.limits import LABEL_BYTES


def label(value: object, name: str, most: int = LABEL_BYTES) -> str:
    """The text, trimmed. Raises Invalid: `<name> is required`, `… is too large`, `… contains an invalid character`."""
    try:
        return required_text(value, name, most)
    except TextInvalid as e:
        raise Invalid(e.message) from None


def storable(name: str) -> bool:
    """Whether a name can be a stored one: PostgreSQL text holds no NUL."""
    return "\0" not in name
