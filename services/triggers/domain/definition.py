"""What a client may write into a trigger, and the form it is stored in (triggers.md, section 2).

Values are plain dicts as decoded; what comes out is JSON-safe. Unknown keys are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from libs.errors import Conflict, Invalid
from libs.protocol import json_safe, limits
from libs.protocol.text import required_text
from libs.protocol.versions import COMPOUND_TRIGGER_SOURCES
from libs.richtext import BlocksInvalid, resolve_prompt
from services.triggers.domain import schedules
from services.triggers.domain.activity.canonical import canonical_resource, names_resource

NewId = Callable[[], str]

ACTIVITY, SCHEDULE, RUN_COMPLETED, WEBHOOK = "activity", "schedule", "run-completed", "webhook"
SINGLE_ACTIVITY = frozenset(
    {"document-comment", "user-mention", "comment-reply", "document-author-comment", "site-update"}
)
ACTIVITY_SOURCES = SINGLE_ACTIVITY | {ACTIVITY}
"""Sources that the activity feed may fire."""

EVENT_TYPES = frozenset(
    {"doc-update", "comment", "citation", "capability", "contact", "document-update", "change", "ref"}
)
_ENDINGS = ("succeeded", "failed", "canceled")

STALE = "This trigger was changed elsewhere, load it again"
MERGED = "A trigger that was merged into another one cannot be edited"
WEBHOOKS_OFF = "Webhook triggers are turned off on this server"


@dataclass(frozen=True, slots=True)
class Definition:
    """A whole trigger as a client writes it. `continuation` is None for the default, a new thread."""

    name: str
    enabled: bool
    source: dict[str, Any]
    prompt: list[Any]
    continuation: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        """`type` of the source."""
        return self.source["type"]


class Rules:
    """The rules of one deployment. `webhooks` says whether webhook sources are offered, `new_id` makes ids of blocks
    and conditions."""

    def __init__(self, new_id: NewId, *, webhooks: bool) -> None:
        self._new_id, self._webhooks = new_id, webhooks

    def trigger(self, value: object) -> Definition:
        """A new trigger. Raises Invalid."""
        if not isinstance(value, dict):
            raise Invalid("Agent trigger is required")
        given = self._given({"enabled": True, **value}, ("name", "enabled", "source", "prompt"))
        if "continuation" in value:
            given["continuation"] = continuation(value["continuation"])
        return Definition(**given)

    def patch(self, value: object) -> dict[str, Any]:
        """The keys that a patch replaces, each as it is stored. Raises Invalid."""
        if not isinstance(value, dict):
            raise Invalid("Agent trigger patch is required")
        keys = ("name", "enabled", "source", "prompt", "continuation")
        changes = self._given(value, [key for key in keys if key in value])
        if not changes:
            raise Invalid("Agent trigger patch is empty")
        return changes

    def _given(self, value: Mapping[str, Any], keys: Any) -> dict[str, Any]:
        return {key: self._value(key, value.get(key)) for key in keys}

    def _value(self, key: str, value: object) -> Any:
        match key:
            case "name":
                return required_text(value, "Trigger name")
            case "enabled":
                if not isinstance(value, bool):
                    raise Invalid("Trigger enabled must be a boolean")
                return value
            case "source":
                return self.source(value)
            case "prompt":
                return self._prompt(value)
        return continuation(value)

    def _prompt(self, value: object) -> list[Any]:
        try:
            return json_safe(resolve_prompt(value, "Trigger prompt", limits.PROMPT_BYTES, self._new_id))
        except BlocksInvalid as e:
            raise Invalid(e.message) from None

    def source(self, value: object) -> dict[str, Any]:
        """A source. Raises Invalid."""
        if not isinstance(value, dict):
            raise Invalid("Trigger source is required")
        kind = _kind(value)
        if kind in SINGLE_ACTIVITY:
            return activity_source(value)
        match kind:
            case "activity":
                return {"type": ACTIVITY, "conditions": self._conditions(value.get("conditions"))}
            case "schedule":
                return {"type": SCHEDULE, "schedule": schedules.normalized(value.get("schedule"))}
            case "run-completed":
                return _run_completed(value)
            case "webhook":
                if not self._webhooks:
                    raise Invalid(WEBHOOKS_OFF)
                return {"type": WEBHOOK}
        raise Invalid("Trigger source type is unsupported")

    def _conditions(self, value: object) -> list[dict[str, Any]]:
        if not isinstance(value, list):
            raise Invalid("Trigger conditions must be an array")
        if not value:
            raise Invalid("Trigger condition is required")
        if len(value) > limits.ACTIVITY_CONDITIONS:
            raise Invalid("Too many trigger conditions")
        conditions: list[dict[str, Any]] = []
        for entry in value:
            if not isinstance(entry, dict):
                raise Invalid("Trigger condition is required")
            source = entry.get("source")
            if not isinstance(source, dict):
                raise Invalid("Trigger condition source is required")
            if _kind(source) not in SINGLE_ACTIVITY:
                raise Invalid("Trigger condition source type is unsupported")
            own = required_text(entry["id"], "Trigger condition ID") if "id" in entry else ""
            conditions.append({"id": own, "source": activity_source(source)})
        return self._with_ids(conditions)

    def _with_ids(self, conditions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        taken = [condition["id"] for condition in conditions if condition["id"]]
        if len(set(taken)) != len(taken):
            raise Invalid("Trigger condition IDs must be unique")
        for condition in conditions:
            while not condition["id"]:
                new = self._new_id()
                condition["id"] = "" if new in taken else new
        return conditions


def activity_source(value: Mapping[str, Any]) -> dict[str, Any]:
    """A single activity source. Raises Invalid."""
    match value.get("type"):
        case "document-comment":
            source: dict[str, Any] = {
                "type": "document-comment",
                "resource": _named(value.get("resource"), "Trigger document resource"),
            }
            if "author" in value:
                source["author"] = required_text(value["author"], "Trigger author")
            return source
        case "user-mention":
            accounts = value.get("mentionedAccounts")
            if accounts is None and "mentionedAccount" in value:
                accounts = [value["mentionedAccount"]]
            named = _accounts(accounts, "mentioned account")
            return {"type": "user-mention", "mentionedAccounts": named, **_prefix(value)}
        case "comment-reply":
            named = _accounts(value.get("repliedToAccounts"), "replied-to account")
            return {"type": "comment-reply", "repliedToAccounts": named, **_prefix(value)}
        case "document-author-comment":
            named = _accounts(value.get("documentAuthors"), "document author")
            return {"type": "document-author-comment", "documentAuthors": named, **_prefix(value)}
    return _site_update(value)


def continuation(value: object) -> dict[str, Any]:
    """A continuation. Raises Invalid."""
    if not isinstance(value, dict):
        raise Invalid("Trigger continuation is required")
    match value.get("kind"):
        case "newThread":
            return {"kind": "newThread"}
        case "wake":
            wake: dict[str, Any] = {"kind": "wake", "signal": required_text(value.get("signal"), "Trigger signal")}
            if "runId" in value:
                wake["runId"] = required_text(value["runId"], "Trigger run ID")
            if "payload" in value:
                wake["payload"] = json_safe(value["payload"])
            return wake
    raise Invalid("Trigger continuation kind is unsupported")


def is_compound(source: object) -> bool:
    """Whether clients before protocol 3 do not know the source."""
    return isinstance(source, dict) and _kind(source) in COMPOUND_TRIGGER_SOURCES


def check_writable(merged_into: str | None, updated_at: int, expected: int | None) -> None:
    """Raises Conflict for a trigger that was merged, or whose `updated_at` is another than the client has seen."""
    if merged_into is not None:
        raise Conflict(MERGED)
    if expected is not None and expected != updated_at:
        raise Conflict(STALE)


def _kind(source: Mapping[str, Any]) -> str:
    kind = source.get("type")
    return kind if isinstance(kind, str) else ""


def _named(value: object, label: str) -> str:
    resource = required_text(value, label, limits.URL_BYTES)
    if not names_resource(resource):
        raise Invalid(f"{label} must name an account or document")
    return resource


def _prefix(value: Mapping[str, Any]) -> dict[str, str]:
    key = "resourcePrefix"
    return {key: _named(value[key], "Trigger resource prefix")} if key in value else {}


def _accounts(value: object, noun: str) -> list[str]:
    if not isinstance(value, list):
        raise Invalid(f"Trigger {noun}s must be an array")
    if len(value) > limits.TRIGGER_LIST_ENTRIES:
        raise Invalid(f"Too many trigger {noun}s")
    accounts = list(dict.fromkeys(required_text(account, f"Trigger {noun}") for account in value))
    if not accounts:
        raise Invalid(f"Trigger {noun} is required")
    return accounts


def _site_update(value: Mapping[str, Any]) -> dict[str, Any]:
    prefix = _named(value.get("resourcePrefix"), "Trigger resource prefix")
    source: dict[str, Any] = {"type": "site-update", "resourcePrefix": canonical_resource(prefix)}
    if "eventTypes" in value:
        types = value["eventTypes"]
        if not isinstance(types, list):
            raise Invalid("Trigger event types must be an array")
        if len(types) > limits.TRIGGER_LIST_ENTRIES:
            raise Invalid("Too many trigger event types")
        source["eventTypes"] = [required_text(kind, "Trigger event type") for kind in types]
        if not EVENT_TYPES.issuperset(source["eventTypes"]):
            raise Invalid("Trigger event type is unsupported")
    return source


def _run_completed(value: Mapping[str, Any]) -> dict[str, Any]:
    source: dict[str, Any] = {"type": RUN_COMPLETED}
    if "agentId" in value:
        source["agentId"] = required_text(value["agentId"], "Trigger agent ID")
    if "status" in value:
        if value["status"] not in _ENDINGS:
            raise Invalid("Trigger run status must be succeeded, failed, or canceled")
        source["status"] = value["status"]
    if "titleMatch" in value:
        source["titleMatch"] = required_text(value["titleMatch"], "Trigger title match")
    return source
