"""Downloads: which URLs, and what the files are called (actions.md; limits.md)."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from libs.errors import Invalid
from libs.protocol import limits
from libs.protocol.files import usual_extension
from libs.protocol.text import byte_length, required_text
from services.memory.domain.paths import normalized

FOLDER = "downloads"

_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,8}\Z")
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f]")
# A type's extension and its dot still have to fit.
_NAME_BYTES = limits.MEMORY_PATH_BYTES - len(FOLDER) - 16


def checked_url(value: str) -> str:
    """The URL, trimmed. Empty stands for one that is not text.

    Raises Invalid `Download URL is required`, `Download URL is too large`, `Invalid download URL: <u>`, `Download URL
    must use http or https`.
    """
    url = required_text(value, "Download URL", limits.URL_BYTES, allow_nul=True)
    try:
        parts = urlsplit(url)
        named = parts.scheme and (parts.hostname or parts.scheme not in ("http", "https"))
        _ = parts.port
    except ValueError:
        named = False
    if not named or "\0" in url:
        raise invalid_url(url)
    if urlsplit(url).scheme not in ("http", "https"):
        raise Invalid("Download URL must use http or https")
    return url


def invalid_url(url: str) -> Invalid:
    """The refusal of what is no URL."""
    return Invalid(f"Invalid download URL: {url}")


def target(path: str | None, final_url: str, content_type: str | None, now_ms: int) -> str:
    """Where a download goes: to `path`, or, when that is empty, below `downloads` under the last segment of its URL.

    A path without an extension gets that of the content type, when it is known. Raises Invalid by the path rules.
    """
    named = f"{FOLDER}/{_name_of(final_url) or f'download-{now_ms}'}"
    chosen = normalized(named if path == "" else path)
    if _EXTENSION.search(chosen) or not content_type:
        return chosen
    extension = usual_extension(content_type)
    return normalized(f"{chosen}.{extension}") if extension else chosen


def _name_of(url: str) -> str:
    last = unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2])
    name = _UNUSABLE.sub("", last.replace("/", "-").replace("\\", "-").replace("..", "-")).strip()
    name = name[: limits.DOWNLOAD_NAME_CHARS]
    while byte_length(name) > _NAME_BYTES:
        name = name[:-1]
    return "" if name == "." else name
