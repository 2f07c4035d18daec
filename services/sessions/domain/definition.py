"""Rules of an agent's definition, in their documented order and with their texts (actions.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from libs.errors import Forbidden, Invalid
from libs.protocol import limits
from libs.protocol.models import REASONING_LEVELS, reasoning_levels
from libs.protocol.text import byte_length, required_text
from libs.richtext import BlocksInvalid, resolve_prompt
from libs.wire import encode

Definition = dict[str, Any]


def normalized(value: object, new_id: Callable[[], str]) -> Definition:
    """The definition as it is stored: texts trimmed, the prompt as blocks, unknown keys dropped.

    `new_id` names the blocks of a prompt that was sent as markdown. Raises Invalid; what the definition refers to is
    checked afterwards by `check_references`.
    """
    if not isinstance(value, dict):
        raise Invalid("Agent definition is required")
    out: Definition = {"name": required_text(value.get("name"), "Agent name")}
    out["systemPrompt"] = _prompt(value.get("systemPrompt"), new_id)
    out["modelProvider"] = required_text(value.get("modelProvider"), "Model provider")
    out["model"] = required_text(value.get("model"), "Model")
    if "reasoningLevel" in value:
        out["reasoningLevel"] = reasoning_level(value["reasoningLevel"])
    if "enabledModels" in value:
        models = _enabled_models(value["enabledModels"])
        if models:
            out["enabledModels"] = models
    if "signingKey" in value:
        out["signingKey"] = required_text(value["signingKey"], "Signing key")
    if "signingKeys" in value:
        out["signingKeys"] = _names(
            value["signingKeys"], "Signing key", "Signing keys must be an array", "Too many signing keys",
            limits.SIGNING_KEYS,
        )  # fmt: skip
    if "tools" in value:
        out["tools"] = _tools(value["tools"])
    if "metadata" in value:
        out["metadata"] = _metadata(value["metadata"])
    if "mcpServers" in value:
        out["mcpServers"] = _names(
            value["mcpServers"], "MCP server name", "MCP servers must be an array", "Too many MCP servers",
            limits.MCP_SERVERS_PER_DEFINITION,
        )  # fmt: skip
    return out


def reasoning_level(value: object) -> str:
    """A reasoning level. Raises Invalid `Reasoning level is invalid`."""
    if not isinstance(value, str) or value not in REASONING_LEVELS:
        raise Invalid("Reasoning level is invalid")
    return value


def granted_keys(definition: Definition) -> list[str]:
    """Names of the signing keys a definition grants; the legacy single key counts when there is no list."""
    if "signingKeys" in definition:
        return list(dict.fromkeys(definition["signingKeys"]))
    return [definition["signingKey"]] if "signingKey" in definition else []


def named_keys(definition: Definition) -> list[str]:
    """Names of all signing keys a definition mentions: each of them has to exist."""
    legacy = [definition["signingKey"]] if "signingKey" in definition else []
    return list(dict.fromkeys([*legacy, *definition.get("signingKeys", ())]))


def check_grants(before: Definition, after: Definition) -> None:
    """Only the owner may change the granted keys, compared as sets. Raises Forbidden for everybody else."""
    if set(granted_keys(before)) != set(granted_keys(after)):
        raise Forbidden("Only the agent owner can change signing accounts")


def check_references(definition: Definition, provider_type: str | None, missing_keys: Sequence[str]) -> None:
    """Check what a definition refers to. `provider_type` is None when the account has no such provider.

    Raises Invalid `Model provider not found`, `Model … does not support …`, `Signing key not found`, in this order.
    """
    if provider_type is None:
        raise Invalid("Model provider not found")
    level, model = definition.get("reasoningLevel"), definition["model"]
    if level is not None:
        levels = reasoning_levels(provider_type, model)
        if not levels:
            raise Invalid(f"Model {model} does not support a reasoning level")
        if level not in levels:
            valid = ", ".join(levels)
            raise Invalid(f"Model {model} does not support reasoning level '{level}' (valid: {valid})")
    if missing_keys:
        raise Invalid("Signing key not found")


def _prompt(value: object, new_id: Callable[[], str]) -> list[Any]:
    try:
        return resolve_prompt(value, "System prompt", limits.PROMPT_BYTES, new_id)
    except BlocksInvalid as e:
        raise Invalid(e.message) from None


def _enabled_models(value: object) -> list[dict[str, str]]:
    if not isinstance(value, list):
        raise Invalid("Enabled models must be an array")
    if len(value) > limits.ENABLED_MODELS:
        raise Invalid("Too many enabled models")
    found: dict[tuple[str, str], None] = {}
    for entry in value:
        if not isinstance(entry, dict):
            raise Invalid("Enabled models must be provider/model objects")
        provider = required_text(entry.get("provider"), "Enabled model provider")
        found[provider, required_text(entry.get("model"), "Enabled model")] = None
    return [{"provider": provider, "model": model} for provider, model in found]


def _names(value: object, label: str, not_a_list: str, too_many: str, most: int) -> list[str]:
    if not isinstance(value, list):
        raise Invalid(not_a_list)
    if len(value) > most:
        raise Invalid(too_many)
    return [required_text(name, label) for name in value]


def _tools(value: object) -> list[str]:
    if not isinstance(value, list):
        raise Invalid("Tools must be an array")
    if len(value) > limits.TOOLS_PER_DEFINITION:
        raise Invalid("Too many tools")
    total = 0
    for name in value:
        if not isinstance(name, str) or not name or name != name.strip():
            raise Invalid("Tools must be non-empty trimmed strings")
        size = byte_length(name)
        if size > limits.TOOL_NAME_BYTES:
            raise Invalid("Tool name is too large")
        total += size
    if total > limits.TOOLS_BYTES:
        raise Invalid("Tools are too large")
    return value


def _metadata(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid("Metadata must be an object")
    if len(encode(value)) > limits.METADATA_BYTES:
        raise Invalid("Metadata is too large")
    return value


def with_override(definition: Definition, override: Mapping[str, Any] | None) -> Definition:
    """The definition with a session's model override applied (runtime.md, section 2.3)."""
    if override is None:
        return definition
    effective = {**definition, "modelProvider": override["provider"], "model": override["model"]}
    effective.pop("reasoningLevel", None)
    if "reasoningLevel" in override:
        effective["reasoningLevel"] = override["reasoningLevel"]
    return effective
