"""What all adapters share: the neutral request handed to a pydantic-ai model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.settings import ModelSettings

from services.runs.providers.contract import Message, ToolSpec
from services.runs.providers.history import to_history, to_parameters


class ModelAdapter:
    """Sends requests to one pydantic-ai model with fixed settings."""

    def __init__(self, model: Model, settings: dict[str, Any], *, marks_errors: bool = False) -> None:
        self._model = model
        self._settings = settings
        self._marks_errors = marks_errors

    def open(
        self, system: str, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """One streamed request, not sent before the block is entered."""
        return self._model.request_stream(
            to_history(system, messages, marks_errors=self._marks_errors),
            cast(ModelSettings, self.settings_for(messages)),
            to_parameters(tools),
        )

    def settings_for(self, messages: Sequence[Message]) -> dict[str, Any]:
        """The settings of a request with these messages."""
        return dict(self._settings)
