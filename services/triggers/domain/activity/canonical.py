"""Addresses of accounts and documents in one form: versions, queries and web hosts never matter (triggers.md §3)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_SCHEME: Final = "hm://"
_TRAILING: Final = re.compile(r"[\s/]+$")
_CUT: Final = re.compile(r"[?#]")


def canonical_resource(text: str) -> str:
    """`text` as `hm://<account>[/path]`: no query, fragment or trailing slash.

    A web address whose path holds `/hm/<uid>/…` becomes the `hm://` address, without segments that start with `:`.
    Other text only loses fragment, query and trailing slashes. Idempotent.
    """
    value = text.strip()
    lower = value[:8].lower()
    if lower.startswith(_SCHEME):
        return _joined(value[len(_SCHEME) :])
    if lower.startswith(("http://", "https://")):
        found = _web(value)
        if found is not None:
            return found
    return _TRAILING.sub("", _CUT.split(value, maxsplit=1)[0]).strip()


def names_resource(text: str) -> bool:
    """Whether `text` names an account or document: an `hm://` address with an account and no wildcard, or a web
    address of one."""
    address = canonical_resource(text)
    if not address.startswith(_SCHEME) or "*" in address:
        return False
    account = address[len(_SCHEME) :].partition("/")[0]
    return bool(account) and not any(char.isspace() for char in account)


def is_below(address: str, prefix: str) -> bool:
    """Whether canonical `address` is `prefix` or, by whole segments, below it. Nothing is below an empty prefix."""
    return bool(prefix) and (address == prefix or address.startswith(prefix.rstrip("/") + "/"))


def account_of(text: str) -> str:
    """The account id in an id or an `hm://` address of an account."""
    value = text.strip()
    if value[: len(_SCHEME)].lower() == _SCHEME:
        return canonical_resource(value)[len(_SCHEME) :].partition("/")[0]
    return value


def _joined(rest: str) -> str:
    account, _, path = _CUT.split(rest, maxsplit=1)[0].partition("/")
    segments = [account.strip(), *(segment for segment in path.split("/") if segment.strip())]
    return (_SCHEME + "/".join(segments)).strip()


def _web(value: str) -> str | None:
    path = _CUT.split(value.split("://", 1)[1], maxsplit=1)[0].partition("/")[2]
    segments = [segment for segment in path.split("/") if segment]
    if "hm" not in segments:
        return None
    account, *below = segments[segments.index("hm") + 1 :] or [""]
    if not account:
        return None
    return _joined("/".join(unquote(segment) for segment in [account, *below] if not segment.startswith(":")))
