"""The one hierarchy of errors that a caller is meant to see.

A domain raises one of these; `libs.rpc` carries it across gRPC and the edge turns it into
`{_: 'Error', message, code?}` at its HTTP status. Anything else that is raised is a fault of ours: it is logged with
its trace id and answered as a generic 500. Statuses and texts: protocol documents `actions.md` and `envelope.md`.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BadGateway",
    "Canceled",
    "Conflict",
    "Forbidden",
    "Internal",
    "Invalid",
    "NotFound",
    "SeedError",
    "StaleAttempt",
    "TooLarge",
    "TooMany",
    "TooOld",
    "Unauthenticated",
    "Unavailable",
]


class SeedError(Exception):
    """Base of all public errors.

    `message` is the public text, `code` the optional public code, `status` the HTTP status, `reason` the stable
    upper-case name that travels as ErrorInfo.reason, `retry_after_s` the seconds a client should wait, if any.
    """

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.retry_after_s = retry_after_s


class Invalid(SeedError):
    """400: the request breaks a rule; the message says which."""

    status = 400
    reason = "INVALID"


class Unauthenticated(SeedError):
    """401: the envelope, or an internal token, does not prove who sends it."""

    status = 401
    reason = "UNAUTHENTICATED"


class Forbidden(SeedError):
    """403: the caller may see it but not do this."""

    status = 403
    reason = "FORBIDDEN"


class NotFound(SeedError):
    """404: it does not exist, or the caller may not see it."""

    status = 404
    reason = "NOT_FOUND"


class Conflict(SeedError):
    """409: the state of things does not allow it now."""

    status = 409
    reason = "CONFLICT"


class StaleAttempt(Conflict):
    """A write of a claim that a newer attempt has fenced off. Internal to runs and sessions."""

    reason = "STALE_ATTEMPT"


class Canceled(Conflict):
    """A write of a turn that has been canceled. Internal to runs and sessions."""

    reason = "CANCELED"


class TooLarge(SeedError):
    """413: beyond a size limit."""

    status = 413
    reason = "TOO_LARGE"


class TooOld(SeedError):
    """426: the client's protocol version cannot be served."""

    status = 426
    reason = "TOO_OLD"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="protocol_too_old")


class TooMany(SeedError):
    """429: beyond a rate or a count."""

    status = 429
    reason = "TOO_MANY"


class BadGateway(SeedError):
    """502: a server outside (model provider, HM server) failed."""

    status = 502
    reason = "BAD_GATEWAY"


class Unavailable(SeedError):
    """503: a part of ours is away for the moment."""

    status = 503
    reason = "UNAVAILABLE"


class Internal(SeedError):
    """500: a fault of ours, already logged where it happened."""

    status = 500
    reason = "INTERNAL"
