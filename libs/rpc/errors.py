"""The one table between public errors, gRPC statuses and back.

A SeedError travels as a gRPC status whose details hold one `google.rpc.ErrorInfo`: reason, domain "seed-agents", and
metadata `status` (HTTP), `code` (public code, if any), `retryAfter` (seconds, if any). The message is the public one.
"""

from __future__ import annotations

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from libs import errors, telemetry
from libs.errors import SeedError

log = telemetry.get_logger("rpc")

DOMAIN = "seed-agents"
DETAILS_KEY = "grpc-status-details-bin"

INTERNAL_TOKEN = "internal_token"
"""Code of the Unauthenticated that refuses a token: a misconfiguration of ours, never the fault of a client."""

METADATA_BYTES = 64 * 1024
"""Most bytes of the metadata of a call or an answer."""
_MESSAGE_CHARS = 4_000
_TOO_LARGE = "larger than max"
"""In the text of gRPC's own refusal of a message, by either side."""

STATUS: dict[type[SeedError], grpc.StatusCode] = {
    errors.Invalid: grpc.StatusCode.INVALID_ARGUMENT,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.Conflict: grpc.StatusCode.ABORTED,
    errors.StaleAttempt: grpc.StatusCode.ABORTED,
    errors.Canceled: grpc.StatusCode.CANCELLED,
    errors.TooLarge: grpc.StatusCode.OUT_OF_RANGE,
    errors.TooOld: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TooMany: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.BadGateway: grpc.StatusCode.UNAVAILABLE,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.Internal: grpc.StatusCode.INTERNAL,
}
_BY_REASON: dict[str, type[SeedError]] = {cls.reason: cls for cls in STATUS}
# Of a reason this process does not know, from a peer that is newer; subclasses come later and do not count.
_BY_STATUS: dict[str, type[SeedError]] = {str(cls.status): cls for cls in reversed(STATUS)}


def status_of(error: SeedError) -> grpc.StatusCode:
    """The gRPC status of a public error."""
    for cls in type(error).__mro__:
        if cls in STATUS:
            return STATUS[cls]
    return grpc.StatusCode.UNKNOWN


def text_of(error: SeedError) -> str:
    """The public message, cut to what fits into metadata."""
    text = error.message
    return text if len(text) <= _MESSAGE_CHARS else text[: _MESSAGE_CHARS - 1] + "…"


def details_of(error: SeedError) -> bytes:
    """The serialized google.rpc.Status that travels in the trailing metadata."""
    metadata = {"status": str(error.status)}
    if error.code:
        metadata["code"] = error.code
    if error.retry_after_s is not None:
        metadata["retryAfter"] = repr(float(error.retry_after_s))
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    detail = any_pb2.Any()
    detail.Pack(info)
    code: int = status_of(error).value[0]
    return status_pb2.Status(code=code, message=text_of(error), details=[detail]).SerializeToString()


def away(service: str) -> errors.Unavailable:
    """The error of a call that did not reach its service."""
    return errors.Unavailable(f"The {service} service is not available, try again", retry_after_s=1)


def from_rpc_error(error: grpc.aio.AioRpcError, service: str) -> SeedError:
    """The public error that a failed call carries.

    A failure without details becomes Unavailable, TooLarge (gRPC refused the size of a message) or Internal.
    """
    for key, value in error.trailing_metadata() or ():
        if key != DETAILS_KEY:
            continue
        status = status_pb2.Status.FromString(value if isinstance(value, bytes) else value.encode())
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                cls = _BY_REASON.get(info.reason) or _BY_STATUS.get(info.metadata.get("status", ""), errors.Internal)
                if cls is errors.TooOld:
                    return errors.TooOld(status.message)
                if info.metadata.get("code") == INTERNAL_TOKEN:
                    log.error("internal token refused", service=service)
                    return errors.Internal("Internal server error")
                retry = info.metadata.get("retryAfter")
                return cls(
                    status.message,
                    code=info.metadata.get("code") or None,
                    retry_after_s=float(retry) if retry else None,
                )
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return away(service)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in (error.details() or ""):
        return errors.TooLarge("Message is too large")
    log.error("call failed", service=service, status=error.code().name)
    return errors.Internal("Internal server error")
