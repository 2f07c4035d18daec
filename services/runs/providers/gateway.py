"""The one door to every model provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from services.runs.providers.contract import Message, ModelConfig, ReplyEvent, ToolSpec


class ModelGateway(Protocol):
    """Streams replies of models."""

    def stream(
        self, config: ModelConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AbstractAsyncContextManager[AsyncIterator[ReplyEvent]]:
        """Send one request and iterate the events of its reply, the last one `ReplyDone`.

        Raises `ConfigError` for an unusable configuration and `ProviderError` for everything the provider does wrong,
        on entering the block or while iterating. A failure before the first byte (408, 409, 429, 5xx, no connection)
        has already been tried three times.
        """
        ...
