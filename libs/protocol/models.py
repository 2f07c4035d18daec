"""What is known about model providers and models: endpoints, reasoning levels, image input (runtime.md, section 2)."""

import re
from typing import Final, Literal

import msgspec

ModelList = Literal["openai", "anthropic", "google"]
WireApi = Literal["chat", "messages", "generateContent"]
Unset = Literal["off", "default"]

REASONING_LEVELS: Final = ("minimal", "low", "medium", "high", "xhigh")
"""All levels, from least to most."""


class ProviderType(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the provider table (actions.md)."""

    wire_api: WireApi
    base_url: str | None
    """Default base URL; None when there is none."""
    model_list: ModelList
    """How models are listed: `GET models` with Bearer, `GET v1/models` with `x-api-key`, `GET models?key=`."""
    needs_key: bool = True
    own_base_url: bool = False
    """May a stored base URL replace the default? Elsewhere it is ignored, so that a key is never sent elsewhere."""
    subscription: bool = False
    """Can it be used with a subscription sign-in?"""
    title: str
    """Name in messages to people."""


PROVIDERS: Final[dict[str, ProviderType]] = {
    "openai": ProviderType(
        wire_api="chat",
        base_url="https://api.openai.com/v1",
        model_list="openai",
        subscription=True,
        title="OpenAI",
    ),
    "anthropic": ProviderType(
        wire_api="messages", base_url="https://api.anthropic.com", model_list="anthropic", title="Anthropic"
    ),
    "google": ProviderType(
        wire_api="generateContent",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        model_list="google",
        title="Google",
    ),
    "openrouter": ProviderType(
        wire_api="chat", base_url="https://openrouter.ai/api/v1", model_list="openai", title="OpenRouter"
    ),
    "deepseek": ProviderType(
        wire_api="chat", base_url="https://api.deepseek.com", model_list="openai", title="DeepSeek"
    ),
    "groq": ProviderType(wire_api="chat", base_url="https://api.groq.com/openai/v1", model_list="openai", title="Groq"),
    "xai": ProviderType(wire_api="chat", base_url="https://api.x.ai/v1", model_list="openai", title="xAI"),
    "ollama": ProviderType(
        wire_api="chat",
        base_url="http://localhost:11434/v1",
        model_list="openai",
        needs_key=False,
        own_base_url=True,
        title="Ollama",
    ),
    "custom": ProviderType(
        wire_api="chat", base_url=None, model_list="openai", needs_key=False, own_base_url=True, title="Custom"
    ),
}
"""The provider types that can be used, by `ModelProviderConfig.type`."""

CHATGPT: Final = "chatgpt"
"""Key of ChatGPT's backend among the vendors' URLs: no provider type has this name."""
CHATGPT_URL: Final = "https://chatgpt.com/backend-api/codex"
"""Base URL of the backend that a subscription of type openai is used with, in place of the vendor's API."""


class ReasoningSupport(msgspec.Struct, frozen=True, kw_only=True):
    """How a model reasons."""

    levels: tuple[str, ...]
    """Levels it accepts, in the order of `REASONING_LEVELS`."""
    unset: Unset
    """Without a level: no reasoning, or the provider's default level."""
    sends_none: bool = False
    """Must "no reasoning" be said outright, as effort `none`?"""


_FULL: Final = ("minimal", "low", "medium", "high")
_O_SERIES: Final = ReasoningSupport(levels=("low", "medium", "high"), unset="default")
_GPT_5: Final = ReasoningSupport(levels=_FULL, unset="default")
_GPT_5_1: Final = ReasoningSupport(levels=("low", "medium", "high"), unset="off", sends_none=True)
_GPT_5_2: Final = ReasoningSupport(levels=("low", "medium", "high", "xhigh"), unset="off", sends_none=True)
_THINKING: Final = ReasoningSupport(levels=_FULL, unset="off")
_ALWAYS_THINKING: Final = ReasoningSupport(levels=_FULL, unset="default")

_OPENAI_O: Final = re.compile(r"o[134](?:-|$)")
_GPT: Final = re.compile(r"gpt-([0-9]+)(?:\.([0-9]+))?")
_CLAUDE_NUMBERED: Final = re.compile(r"claude-([0-9]+)-([0-9]+)")
_CLAUDE_FAMILY: Final = re.compile(r"claude-[a-z]+-[0-9]+")
_CLAUDE_GENERATION: Final = re.compile(r"claude-([0-9]+)")
_GEMINI: Final = re.compile(r"gemini-([0-9]+)(?:\.([0-9]+))?")
_OPENAI_O_SEES: Final = re.compile(r"(?:o1(?:-pro)?(?:$|-2)|o3(?:$|-2|-pro)|o4-mini)")
_OPENAI_4_SEES: Final = ("gpt-4o", "chatgpt-4o", "gpt-4.1", "gpt-4-turbo")


def reasoning_support(provider_type: str, model: str) -> ReasoningSupport | None:
    """How the model reasons, or None when its reasoning cannot be set."""
    if provider_type == "openai":
        return _openai(model)
    if provider_type == "anthropic":
        numbered = _CLAUDE_NUMBERED.match(model)
        if numbered:
            return _THINKING if _version(numbered) >= (3, 7) else None
        return _THINKING if _CLAUDE_FAMILY.match(model) else None
    if provider_type == "google":
        gemini = _GEMINI.match(model)
        if gemini is None or _version(gemini) < (2, 5):
            return None
        return _ALWAYS_THINKING if "-pro" in model else _THINKING
    return None


def reasoning_levels(provider_type: str, model: str) -> tuple[str, ...]:
    """The levels the model accepts, least first; empty when its reasoning cannot be set."""
    support = reasoning_support(provider_type, model)
    return support.levels if support else ()


def default_reasoning(provider_type: str, model: str) -> Literal["off", "none", "default"]:
    """Without a level: `off` (send nothing, it does not reason), `none` (say effort none), `default` (send nothing)."""
    support = reasoning_support(provider_type, model)
    if support is None or (support.unset == "off" and not support.sends_none):
        return "off"
    return "none" if support.unset == "off" else "default"


def sees_images(provider_type: str, model: str) -> bool:
    """Does the model take images in user messages?"""
    if provider_type == "openai":
        gpt = _GPT.match(model)
        if gpt and _version(gpt) >= (5, 0):
            return True
        return model.startswith(_OPENAI_4_SEES) or _OPENAI_O_SEES.match(model) is not None
    if provider_type == "anthropic":
        generation = _CLAUDE_GENERATION.match(model)
        return int(generation[1]) >= 3 if generation else _CLAUDE_FAMILY.match(model) is not None
    return provider_type == "google" and model.startswith("gemini-")


def base_url(provider_type: str, stored: str | None) -> str | None:
    """The base URL to use: the stored one where the type allows it, else the default; None when there is neither."""
    provider = PROVIDERS.get(provider_type)
    if provider is None:
        return None
    return stored if stored and provider.own_base_url else provider.base_url


def _openai(model: str) -> ReasoningSupport | None:
    if _OPENAI_O.match(model):
        return _O_SERIES
    gpt = _GPT.match(model)
    if gpt is None or _version(gpt) < (5, 0):
        return None
    if _version(gpt) >= (5, 2):
        return _GPT_5_2
    if _version(gpt) >= (5, 1):
        return _GPT_5_1
    return None if model.startswith("gpt-5-chat") else _GPT_5


def _version(match: re.Match[str]) -> tuple[int, int]:
    return int(match[1]), int(match[2] or 0)
