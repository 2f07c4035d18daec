"""Reading what requests carry."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from libs.errors import Forbidden
from libs.rpc import Caller
from libs.wire import decode


def document(body: bytes) -> Any:
    """The value a client sent as DAG-CBOR; None when it sent none."""
    return decode(body) if body else None


def optional(request: Message, name: str) -> Any:
    """An optional field; None when it is absent."""
    return getattr(request, name) if request.HasField(name) else None


def only(caller: Caller, *services: str) -> None:
    """Let pass calls of these services. Raises Forbidden."""
    if caller.service not in services:
        raise Forbidden("This call is internal")
