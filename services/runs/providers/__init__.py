"""Model providers: one streaming call for every provider type.

    async with gateway.stream(config, system, messages, tools) as reply:
        async for event in reply:
            ...

Leaving the block early, or cancelling the task inside it, closes the HTTP connection at once. Provider libraries are
imported on the first use of a provider type, never by importing this package.
"""

from services.runs.providers.contract import (
    AssistantMessage,
    ConfigError,
    FinishReason,
    ImagePart,
    Message,
    ModelConfig,
    ProviderError,
    ReplyDone,
    ReplyEvent,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolCallReady,
    ToolResultMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from services.runs.providers.gateway import ModelGateway

__all__ = [
    "AssistantMessage",
    "ConfigError",
    "FinishReason",
    "ImagePart",
    "Message",
    "ModelConfig",
    "ModelGateway",
    "ProviderError",
    "ReplyDone",
    "ReplyEvent",
    "TextDelta",
    "TextPart",
    "ToolCallPart",
    "ToolCallReady",
    "ToolResultMessage",
    "ToolSpec",
    "Usage",
    "UserMessage",
]
