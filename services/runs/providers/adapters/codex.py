"""ChatGPT's backend for subscriptions: OpenAI's Responses format in a narrower dialect.

It streams only, keeps nothing, wants the prompt as `instructions`, and refuses what tunes sampling.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import httpx2
from pydantic_ai import messages as pa
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.openai_codex import OpenAICodexModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.openai_codex import OpenAICodexProvider
from pydantic_ai.settings import ModelSettings

from libs.protocol.models import default_reasoning
from services.runs.providers.adapters.base import ModelAdapter
from services.runs.providers.contract import Message, ModelConfig, TextPart, ToolSpec, UserMessage
from services.runs.providers.history import to_history, to_parameters
from services.runs.providers.openai_client import StreamingOpenAI

# The transport below writes the header; the SDK does not send a request without a key.
_NO_KEY = "none"


def build(config: ModelConfig, base_url: str, http: httpx2.AsyncClient) -> CodexAdapter:
    """The adapter of a model under a ChatGPT subscription; `http` authorizes its requests."""
    client = StreamingOpenAI(
        api_key=_NO_KEY, base_url=base_url, http_client=http, max_retries=0, organization="", project=""
    )
    # The SDK would fill these from the environment of the process.
    client.organization = client.project = None
    effort = config.reasoning_level
    if effort is None and default_reasoning(config.provider_type, config.model) == "none":
        effort = "none"
    settings: dict[str, Any] = {"openai_store": False}
    if effort is not None:
        settings["openai_reasoning_effort"] = effort
    model = OpenAICodexModel(config.model, provider=OpenAICodexProvider(openai_client=client), profile=_as_sent)
    return CodexAdapter(model, settings, account=config.sign_in.account if config.sign_in else "")


class CodexAdapter(ModelAdapter):
    """Sends the prompt apart from the conversation, and a name of the conversation for the backend's cache."""

    def __init__(self, model: OpenAICodexModel, settings: dict[str, Any], *, account: str) -> None:
        super().__init__(model, settings)
        self._account = account

    def open(
        self, system: str, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """One streamed request, not sent before the block is entered."""
        history = to_history("", messages, marks_errors=self._marks_errors)
        last = history[-1] if history else None
        if isinstance(last, pa.ModelRequest):
            # The backend refuses a request without instructions.
            last.instructions = system or " "
            last.conversation_id = self._conversation(system, messages)
        return self._model.request_stream(
            history, cast(ModelSettings, self.settings_for(messages)), to_parameters(tools)
        )

    def _conversation(self, system: str, messages: Sequence[Message]) -> str:
        """The same for all requests of a session, whose beginning stays, and no id of ours."""
        said = next((message for message in messages if isinstance(message, UserMessage)), None)
        first = "".join(part.text for part in said.parts if isinstance(part, TextPart)) if said else ""
        return hashlib.sha256("\0".join((self._account, system, first)).encode()).hexdigest()[:32]


def _as_sent(known: ModelProfile) -> ModelProfile:
    """What the library knows of the model, but tool schemas as they are."""
    return cast(ModelProfile, {**known, "json_schema_transformer": None})
