"""Rules for texts that clients send: required, bounded in UTF-8 bytes, storable."""

from collections.abc import Mapping
from typing import Any, Final

from libs.errors import Invalid

from .limits import DERIVED_TITLE_CHARS, LABEL_BYTES

# What String.prototype.trim of JavaScript removes: unlike str.strip, U+FEFF but not U+001C to U+001F and U+0085.
WHITESPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)


def byte_length(text: str) -> int:
    """Length in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def required_text(value: object, label: str, max_bytes: int = LABEL_BYTES, *, allow_nul: bool = False) -> str:
    """The text, trimmed.

    Raises `Invalid`: `<label> is required` (not text, or blank), `<label> is too large` (over `max_bytes`),
    `<label> contains an invalid character` (NUL, which PostgreSQL text cannot hold, unless `allow_nul`).
    """
    text = value.strip(WHITESPACE) if isinstance(value, str) else ""
    if not text:
        raise Invalid(f"{label} is required")
    if byte_length(text) > max_bytes:
        raise Invalid(f"{label} is too large")
    if not allow_nul and "\0" in text:
        raise Invalid(f"{label} contains an invalid character")
    return text


def text_argument(action: Mapping[str, Any], key: str) -> str:
    """The text a client sent under `key`, not trimmed; empty when absent or not text, for both are refused alike."""
    value = action.get(key)
    return value if isinstance(value, str) else ""


def optional_text_argument(action: Mapping[str, Any], key: str) -> str | None:
    """None when the key is absent, else as `text_argument`: a key that is present is checked, null included."""
    return text_argument(action, key) if key in action else None


def derived_title(text: str) -> str:
    """A title for a session or run: the first line, whitespace collapsed, 79 characters and `…` when over 80.

    Blank text gives an empty title.
    """
    line = " ".join(text.strip().partition("\n")[0].split())
    return line if len(line) <= DERIVED_TITLE_CHARS else line[: DERIVED_TITLE_CHARS - 1] + "…"
