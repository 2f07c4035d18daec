"""Titles, descriptions, plans and model overrides of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from libs.errors import Invalid
from libs.protocol import json_bytes, limits
from libs.protocol.models import reasoning_levels
from libs.protocol.text import required_text
from services.sessions.domain.definition import reasoning_level

_PLACEHOLDERS = ("untitled session", "untitled sub-session", "new chat")


def title(value: str) -> str:
    """A title as a user gives it, trimmed. Raises Invalid `Session title …`."""
    return required_text(value, "Session title")


def provisional_title(value: str) -> str | None:
    """A title given on creation, or None for a placeholder. Raises Invalid `Session title …`."""
    text = title(value)
    return None if text.lower() in _PLACEHOLDERS else text


@dataclass(frozen=True, slots=True)
class Named:
    """Title, its source and description of a session."""

    title: str | None
    source: str
    description: str | None


def described(now: Named, new_title: str | None, new_description: str | None) -> Named:
    """What the agent's `status` verb makes of it: a user's title wins silently, a description is always taken.

    Raises Invalid for texts that are blank or too large.
    """
    result = now
    if new_title is not None:
        text = title(new_title)
        if now.source != "user":
            result = Named(text, "agent", result.description)
    if new_description is not None:
        text = required_text(new_description, "Session description", limits.SESSION_DESCRIPTION_BYTES)
        result = Named(result.title, result.source, text)
    return result


def titled(now: Named, new_title: str | None, new_description: str | None) -> Named:
    """What the automatic title makes of it: the user's and the agent's own stay, and unfit texts are dropped."""
    result = now
    if now.source in ("", "system"):
        text = _fitting(new_title, "Session title", limits.LABEL_BYTES)
        if text:
            result = Named(text, "agent", result.description)
    if now.description is None:
        text = _fitting(new_description, "Session description", limits.SESSION_DESCRIPTION_BYTES)
        if text:
            result = Named(result.title, result.source, text)
    return result


def _fitting(value: str | None, label: str, most: int) -> str | None:
    try:
        return required_text(value, label, most)
    except Invalid:
        return None


@dataclass(frozen=True, slots=True)
class Override:
    """A model override whose provider and level are still to be checked."""

    provider: str
    model: str
    level: object = None
    has_level: bool = False

    def checked(self, provider_type: str | None) -> bytes:
        """JSON of the public SessionModelOverride; `provider_type` is None when the account has no such provider.

        Raises Invalid `Model provider not found`, `Reasoning level is invalid`, `Model … does not support …`.
        """
        if provider_type is None:
            raise Invalid("Model provider not found")
        value: dict[str, Any] = {"provider": self.provider, "model": self.model}
        if self.has_level:
            level = reasoning_level(self.level)
            if level not in reasoning_levels(provider_type, self.model):
                raise Invalid(f"Model {self.model} does not support reasoning level '{level}'")
            value["reasoningLevel"] = level
        return json_bytes(value)


def override(value: object) -> Override | None:
    """A model override as sent; None clears it.

    Raises Invalid `Model override must be a provider/model object or null`, `Model provider …`, `Model …`.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Invalid("Model override must be a provider/model object or null")
    provider = required_text(value.get("provider"), "Model provider")
    model = required_text(value.get("model"), "Model")
    return Override(provider, model, value.get("reasoningLevel"), "reasoningLevel" in value)
