"""OpenAI's two formats: chat completions, which most types speak, and Responses for OpenAI models that reason."""

from __future__ import annotations

from typing import Any, cast

import httpx2
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from libs.protocol.models import default_reasoning
from services.runs.providers.adapters.base import ModelAdapter
from services.runs.providers.contract import ModelConfig
from services.runs.providers.openai_client import StreamingOpenAI

# Servers that ask for no key get one all the same: the SDK does not send a request without.
_NO_KEY = "none"


def build(config: ModelConfig, base_url: str, http: httpx2.AsyncClient) -> ModelAdapter:
    """The adapter of a model behind an OpenAI-compatible endpoint."""
    client = StreamingOpenAI(
        api_key=config.api_key or _NO_KEY,
        base_url=base_url,
        http_client=http,
        max_retries=0,
        organization="",
        project="",
    )
    # The SDK would fill these from the environment of the process and send them to any server.
    client.organization = client.project = None
    provider = OpenAIProvider(openai_client=client)
    effort = config.reasoning_level
    if effort is None and default_reasoning(config.provider_type, config.model) == "none":
        effort = "none"
    if config.provider_type == "openai" and effort is not None:
        return ModelAdapter(
            OpenAIResponsesModel(config.model, provider=provider, profile=_as_sent),
            {"openai_reasoning_effort": effort, "openai_store": False},
        )
    profile = _as_sent if config.provider_type == "openai" else _COMPATIBLE
    settings: dict[str, Any] = {"openai_reasoning_effort": effort} if effort is not None else {}
    return ModelAdapter(OpenAIChatModel(config.model, provider=provider, profile=profile), settings)


def _as_sent(known: ModelProfile) -> ModelProfile:
    """What the library knows of an OpenAI model, but tool schemas as they are."""
    return cast(ModelProfile, {**known, "json_schema_transformer": None})


# A compatible server may name its models as it likes, so nothing is concluded from the name.
_COMPATIBLE = OpenAIModelProfile(
    json_schema_transformer=None,
    openai_supports_strict_tool_definition=False,
)
