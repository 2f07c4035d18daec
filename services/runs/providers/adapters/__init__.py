"""One module a wire format, each with `build(config, base_url, http) -> Adapter`.

Importing one of them loads its provider library, so the gateway does it on first use, off the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from services.runs.providers.contract import Message, ToolSpec

if TYPE_CHECKING:
    from pydantic_ai.models import StreamedResponse


class Adapter(Protocol):
    """One model of one provider, ready to be asked."""

    def open(
        self, system: str, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """One request; entering the block sends it, leaving it closes the connection."""
        ...
