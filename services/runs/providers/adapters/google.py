"""Google's generateContent format."""

from __future__ import annotations

import re
from typing import Any

import httpx2
from google.genai import Client
from google.genai.types import HttpOptions
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider

from libs.protocol.models import default_reasoning
from services.runs.providers.adapters.base import ModelAdapter
from services.runs.providers.contract import ModelConfig

_VERSIONED = re.compile(r"^(.*)/(v[0-9]+[a-z0-9]*)$")


def build(config: ModelConfig, base_url: str, http: httpx2.AsyncClient) -> ModelAdapter:
    """The adapter of a Gemini model."""
    versioned = _VERSIONED.match(base_url)
    root, version = versioned.groups() if versioned else (base_url, "v1beta")
    client = Client(
        vertexai=False,
        api_key=config.api_key,
        http_options=HttpOptions(
            base_url=root,
            api_version=version,
            httpx_async_client=http,
            timeout=int((http.timeout.read or 600) * 1000),
        ),
    )
    model = GoogleModel(config.model, provider=GoogleProvider(client=client))
    return ModelAdapter(model, _settings(config, model), marks_errors=True)


def _settings(config: ModelConfig, model: GoogleModel) -> dict[str, Any]:
    level = config.reasoning_level
    if level is None:
        off = default_reasoning(config.provider_type, config.model) == "off"
        return {"thinking": False} if off else {}
    if model.profile.get("google_supports_thinking_level", True):
        # The library would move it to the nearest level it knows for the model.
        return {"google_thinking_config": {"thinking_level": level.upper(), "include_thoughts": True}}
    return {"thinking": level}
