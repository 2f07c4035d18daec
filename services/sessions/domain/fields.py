"""What the rules know of a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class Fields(Protocol):
    """Named values: a row of the database, or a dict."""

    def __getitem__(self, name: str, /) -> Any:
        """The value of a name. Raises KeyError."""
        ...

    def keys(self) -> Iterable[str]:
        """All names."""
        ...
