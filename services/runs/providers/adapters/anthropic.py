"""Anthropic's messages format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from services.runs.providers.adapters.base import ModelAdapter
from services.runs.providers.contract import AssistantMessage, Message, ModelConfig, ToolCallPart

# The prompt, the tools and the conversation so far are what the next request of a turn repeats.
_CACHE = {
    "anthropic_cache_instructions": True,
    "anthropic_cache_tool_definitions": True,
    "anthropic_cache_messages": True,
}
_MAX_OUTPUT_TOKENS = 16_384


def build(config: ModelConfig, base_url: str, http: httpx2.AsyncClient) -> ModelAdapter:
    """The adapter of a Claude model."""
    client = AsyncAnthropic(api_key=config.api_key, base_url=base_url, http_client=http, max_retries=0)
    # The SDK would fill it from the environment of the process.
    client.auth_token = None
    model = AnthropicModel(config.model, provider=AnthropicProvider(anthropic_client=client))
    return AnthropicAdapter(model, {**_CACHE, "thinking": config.reasoning_level or False}, marks_errors=True)


class AnthropicAdapter(ModelAdapter):
    """Turns thinking off where Anthropic would refuse it."""

    def settings_for(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Without thinking when the last reply has tool calls but not the thinking that came before them.

        With a thinking budget Anthropic wants that thinking back, signed, and the transcript does not keep it.
        """
        settings = super().settings_for(messages)
        if (
            settings["thinking"]
            and not self._knows("anthropic_supports_adaptive_thinking")
            and _lost_thinking(messages)
        ):
            settings["thinking"] = False
        if not settings["thinking"] and self._knows("anthropic_rejects_max_tokens_beyond_context_window"):
            # For these older models the library allows only 4096, too short for a document.
            settings["max_tokens"] = _MAX_OUTPUT_TOKENS
        return settings

    def _knows(self, trait: str) -> bool:
        return bool(self._model.profile.get(trait, False))


def _lost_thinking(messages: Sequence[Message]) -> bool:
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return message.native is None and any(isinstance(part, ToolCallPart) for part in message.parts)
    return False
