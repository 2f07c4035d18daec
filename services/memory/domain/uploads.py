"""Uploads in chunks: their bounds and ids."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from libs.errors import TooLarge
from libs.protocol import limits
from libs.protocol.files import check_size

ID_PREFIX = "mem-"
"""By it the edge knows whose upload it is."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an operator allows: open uploads an account, and how long one may lie untouched."""

    uploads_per_account: int
    idle_ms: int


def checked_size(size: int) -> int:
    """Declared bytes of an upload. 0 stands for what is not a positive integer.

    Raises Invalid `Upload size must be a positive integer`, TooLarge `Upload exceeds the maximum file size`.
    """
    check_size(size)
    if size > limits.MEMORY_UPLOAD_BYTES:
        raise TooLarge("Upload exceeds the maximum file size")
    return size


def new_id() -> str:
    """A fresh upload id."""
    return f"{ID_PREFIX}{uuid.uuid4()}"
