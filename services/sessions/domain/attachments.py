"""Files of sessions: what they may be, and how they are named (actions.md; limits.md, Memory, attachments, uploads)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from libs.errors import Conflict, Invalid, NotFound, TooLarge
from libs.protocol import limits
from libs.protocol.text import byte_length, required_text, text_argument

TARGET_KIND = "session-attachment"

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FOLDERS = re.compile(r"[\\/]")
_NAMELESS = "file"

# Spelled out: what a system's own table says differs from machine to machine.
_BY_TYPE = {
    "text/plain": "txt text log ini conf cfg toml yaml yml ts tsx jsx py rs go java c h cpp rb sh sql diff patch",
    "text/markdown": "md markdown",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "text/html": "html htm",
    "text/css": "css",
    "text/javascript": "js mjs",
    "text/calendar": "ics",
    "application/json": "json",
    "application/xml": "xml",
    "application/pdf": "pdf",
    "application/rtf": "rtf",
    "application/epub+zip": "epub",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.ms-powerpoint": "ppt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/zip": "zip",
    "application/gzip": "gz tgz",
    "application/x-tar": "tar",
    "application/wasm": "wasm",
    "image/png": "png",
    "image/jpeg": "jpg jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/avif": "avif",
    "image/heic": "heic",
    "image/bmp": "bmp",
    "image/tiff": "tif tiff",
    "image/svg+xml": "svg",
    "image/x-icon": "ico",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "audio/ogg": "ogg oga",
    "audio/mp4": "m4a",
    "audio/flac": "flac",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
}
_TYPES = {extension: kind for kind, extensions in _BY_TYPE.items() for extension in extensions.split()}


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


def check_storage(used: int, size: int, bounds: Bounds) -> None:
    """Whether an account that has `used` bytes may have `size` more. Raises TooLarge `Account storage is full`."""
    if bounds.storage_bytes and used + size > bounds.storage_bytes:
        raise TooLarge("Account storage is full")


def check_size(size: int) -> None:
    """Raises Invalid `Upload size must be a positive integer`."""
    if size <= 0:
        raise Invalid("Upload size must be a positive integer")


def session_target(target: Any, size: int) -> Mapping[str, Any]:
    """The target, when it is a session's. Raises Invalid for the size, a missing or another target, in this order."""
    if isinstance(target, dict) and target.get("kind") == TARGET_KIND:
        return target
    check_size(size)
    if not isinstance(target, dict):
        raise Invalid("Upload target is required")
    raise Invalid("Unsupported upload target")


def check_chunk(offset: int, size: int, received: int, whole: int) -> None:
    """Whether a chunk of `size` bytes goes on where the upload ends: `received` of `whole` bytes.

    Raises Invalid, TooLarge and Conflict with the documented texts.
    """
    if size <= 0:
        raise Invalid("Chunk content must be non-empty bytes")
    if size > limits.UPLOAD_CHUNK_BYTES:
        raise TooLarge("Chunk is too large")
    if offset < 0:
        raise Invalid("Chunk offset must be a non-negative integer")
    if offset != received:
        raise Conflict(f"Chunk offset {offset} does not match {received} bytes received")
    if received + size > whole:
        raise Invalid("Upload exceeds its declared size")


def check_complete(received: int, whole: int) -> None:
    """Raises Invalid `Upload has <received> of <whole> bytes; cannot commit`."""
    if received != whole:
        raise Invalid(f"Upload has {received} of {whole} bytes; cannot commit")


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


def guessed_type(name: str) -> str | None:
    """MIME type by the extension of a name; None when it says nothing."""
    return _TYPES.get(name.rpartition(".")[2].lower()) if "." in name else None


def _description(name: str, mime_type: str, size: int) -> Description:
    safe = safe_name(name)
    given = required_text(mime_type, "MIME type") if mime_type.strip() else None
    return Description(safe, given or guessed_type(safe), size)


def _readable(size: int) -> str:
    return f"{size // limits.MIB} MiB" if size % limits.MIB == 0 else f"{size} bytes"
