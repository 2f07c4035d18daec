"""Files of sessions: what they may be, and how they are named (actions.md; limits.md, Memory, attachments, uploads)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from libs.errors import Invalid, NotFound, TooLarge
from libs.protocol import limits
from libs.protocol.files import check_size, guessed_type
from libs.protocol.text import byte_length, required_text, text_argument

TARGET_KIND = "session-attachment"

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FOLDERS = re.compile(r"[\\/]")
_NAMELESS = "file"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an operator allows: bytes of an attachment, attachments a session, open uploads an account, idle time.

    `storage_bytes` is what all attachments of an account may have together; 0 is any number.
    """

    attachment_bytes: int
    attachments_per_session: int
    uploads_per_account: int
    upload_idle_ms: int
    storage_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Description:
    """A file about to be stored."""

    name: str
    mime_type: str | None
    size: int


def described(name: str, mime_type: str, size: int, bounds: Bounds) -> Description:
    """A file uploaded at once.

    Raises Invalid `Attachment content must be non-empty bytes`, TooLarge `Attachment exceeds the … limit`, and Invalid
    `MIME type …`.
    """
    if size <= 0:
        raise Invalid("Attachment content must be non-empty bytes")
    if size > bounds.attachment_bytes:
        raise TooLarge(f"Attachment exceeds the {_readable(bounds.attachment_bytes)} limit")
    return _description(name, mime_type, size)


def described_by(target: Mapping[str, Any], size: int, bounds: Bounds) -> Description:
    """The file that an upload with a `session-attachment` target is to become.

    Raises Invalid `Upload size must be a positive integer`, `Attachment name is required`, `MIME type …`; TooLarge
    `Upload exceeds the maximum attachment size`.
    """
    check_size(size)
    name = text_argument(target, "name")
    required_text(name, "Attachment name", limits.REQUEST_BODY_BYTES, allow_nul=True)
    if size > bounds.attachment_bytes:
        raise TooLarge("Upload exceeds the maximum attachment size")
    return _description(name, text_argument(target, "mimeType"), size)


def session_target(target: Any, size: int) -> Mapping[str, Any]:
    """The target, when it is a session's. Raises Invalid for the size, a missing or another target, in this order."""
    if isinstance(target, dict) and target.get("kind") == TARGET_KIND:
        return target
    check_size(size)
    if not isinstance(target, dict):
        raise Invalid("Upload target is required")
    raise Invalid("Unsupported upload target")


def checked_id(value: str) -> str:
    """An attachment id. Raises Invalid `Invalid attachment id: <id>`."""
    if not limits.ATTACHMENT_ID.fullmatch(value):
        raise Invalid(f"Invalid attachment id: {value}")
    return value


def not_found(attachment_id: str) -> NotFound:
    """`Attachment not found: <id>`."""
    return NotFound(f"Attachment not found: {attachment_id}")


def safe_name(value: str) -> str:
    """The last path component without control characters; `file` when nothing is left, the end of a long one."""
    name = _CONTROL.sub("", _FOLDERS.split(value.strip())[-1]).strip()
    if not name:
        return _NAMELESS
    return name if byte_length(name) <= limits.ATTACHMENT_NAME_BYTES else name[-limits.ATTACHMENT_NAME_KEPT_CHARS :]


def _description(name: str, mime_type: str, size: int) -> Description:
    safe = safe_name(name)
    given = required_text(mime_type, "MIME type") if mime_type.strip() else None
    return Description(safe, given or guessed_type(safe), size)


def _readable(size: int) -> str:
    return f"{size // limits.MIB} MiB" if size % limits.MIB == 0 else f"{size} bytes"
