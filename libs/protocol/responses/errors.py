"""The answer to a refused request."""

from typing import Final

from msgspec import UNSET, UnsetType

from ..base import Response

PROTOCOL_TOO_OLD: Final = "protocol_too_old"
"""The error code at HTTP status 426."""


class Error(Response, kw_only=True):
    """A refused request, at the HTTP status of the refusal."""

    message: str
    code: str | UnsetType = UNSET
