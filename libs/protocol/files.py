"""Files that clients send, whole or in chunks: their types, and the rules of uploads (limits.md; actions.md)."""

from __future__ import annotations

from libs.errors import Conflict, Invalid, TooLarge

from . import limits

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


def guessed_type(name: str) -> str | None:
    """MIME type by the extension of a name; None when it says nothing."""
    return _TYPES.get(name.rpartition(".")[2].lower()) if "." in name else None


def usual_extension(mime_type: str) -> str | None:
    """The extension most files of a MIME type have, parameters aside; None for a type that is not known."""
    extensions = _BY_TYPE.get(mime_type.partition(";")[0].strip().lower())
    return None if extensions is None else extensions.partition(" ")[0]


def check_size(size: int) -> None:
    """Raises Invalid `Upload size must be a positive integer`."""
    if size <= 0:
        raise Invalid("Upload size must be a positive integer")


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


def check_storage(used: int, size: int, most: int) -> None:
    """Whether an account that has `used` bytes may have `size` more of `most` (0: any).

    Raises TooLarge `Account storage is full`.
    """
    if most and used + size > most:
        raise TooLarge("Account storage is full")
