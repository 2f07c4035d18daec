"""What an agent may do to its own triggers, and how they are told of (triggers.md, section 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.runs.domain.verbs import VerbError

REPLACE, FREQUENT = "replaceSource", "frequentSchedule"
CONSENTS = (REPLACE, FREQUENT)
"""Options by which an agent says that the user has asked for just that."""
FREQUENT_MINUTES = 5
EXPECTS = "write ~/triggers/<name> expects JSON content: {source, prompt, enabled?, continuation?}"

CONTRACT = """\
write ~/triggers/<name> takes JSON content {source, prompt, enabled?, continuation?} and creates the trigger or \
replaces it whole. enabled is true unless you say otherwise; options {delete: true} removes it; dryRun: true tells \
what would have fired it and saves nothing.
source is one of
- {type: "schedule", schedule: {kind: "interval", every, unit: "minutes" | "hours"}}
- {type: "schedule", schedule: {kind: "weekly", daysOfWeek: [0 (Sunday) to 6], timeOfDay: "HH:MM", timezone}}
- {type: "schedule", schedule: {kind: "once", runAt: Unix ms}}
- {type: "document-comment", resource, author?}
- {type: "user-mention", mentionedAccounts: [...], resourcePrefix?}
- {type: "comment-reply", repliedToAccounts: [...], resourcePrefix?}
- {type: "document-author-comment", documentAuthors: [...], resourcePrefix?}
- {type: "site-update", resourcePrefix, eventTypes?}
- {type: "activity", conditions: [{source: one of the five above}, ...]}
- {type: "run-completed", agentId?, status?, titleMatch?}
- {type: "webhook"}
prompt is markdown: what you are to do each time. continuation {kind: "newThread"} starts a conversation, the default; \
{kind: "wake", signal, runId?, payload?} signals a waiting run.
Only when the user has asked for just that: options {replaceSource: true} changes the kind of source of a trigger, \
options {frequentSchedule: true} allows an interval under 5 minutes."""


def check_consent(trigger: Mapping[str, Any], before: Mapping[str, Any] | None, consents: Mapping[str, bool]) -> None:
    """Let pass a trigger that an agent may write over one with the source `before`. Raises VerbError."""
    source = trigger.get("source")
    if not isinstance(source, Mapping):
        return
    if before is not None and source.get("type") != before.get("type") and not consents.get(REPLACE):
        raise VerbError(
            f"The trigger's source is of the kind {before.get('type')}. Replacing it by {source.get('type')} takes "
            f"options {{{REPLACE}: true}}: only when the user has asked for just that."
        )
    schedule = source.get("schedule")
    if _frequent(schedule) and not consents.get(FREQUENT):
        raise VerbError(
            f"An interval under {FREQUENT_MINUTES} minutes takes options {{{FREQUENT}: true}}: only when the user has "
            "asked for just that."
        )


def _frequent(schedule: Any) -> bool:
    if not isinstance(schedule, Mapping) or schedule.get("kind") != "interval" or schedule.get("unit") != "minutes":
        return False
    every = schedule.get("every")
    return isinstance(every, int | float) and every < FREQUENT_MINUTES


def when(source: Mapping[str, Any]) -> str:
    """One line about what fires a trigger."""
    match source.get("type"):
        case "schedule":
            return _scheduled(source.get("schedule") or {})
        case "document-comment":
            by = f" by {source['author']}" if source.get("author") else ""
            return f"a comment{by} on {source.get('resource')}"
        case "user-mention":
            return f"a mention of {_names(source, 'mentionedAccounts')}{_below(source)}"
        case "comment-reply":
            return f"a reply to a comment of {_names(source, 'repliedToAccounts')}{_below(source)}"
        case "document-author-comment":
            return f"a comment on a document of {_names(source, 'documentAuthors')}{_below(source)}"
        case "site-update":
            kinds = source.get("eventTypes")
            what = ", ".join(map(str, kinds)) if kinds else "a change"
            return f"{what} below {source.get('resourcePrefix')}"
        case "activity":
            return "; or ".join(when(c.get("source") or {}) for c in source.get("conditions") or ())
        case "run-completed":
            return _run_completed(source)
        case "webhook":
            return "a call from outside"
        case kind:
            return str(kind)


def _scheduled(schedule: Mapping[str, Any]) -> str:
    match schedule.get("kind"):
        case "interval":
            return f"every {schedule.get('every')} {schedule.get('unit')}"
        case "weekly":
            names = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
            days = [names[day] for day in schedule.get("daysOfWeek") or () if isinstance(day, int) and 0 <= day <= 6]
            return f"{', '.join(days)} at {schedule.get('timeOfDay')} ({schedule.get('timezone')})"
        case _:
            return f"once, at {schedule.get('runAt')}"


def _run_completed(source: Mapping[str, Any]) -> str:
    status = source.get("status")
    ends = {"succeeded": "succeeds", "failed": "fails", "canceled": "is canceled"}.get(str(status), "ends")
    titled = f' titled "{source["titleMatch"]}"' if source.get("titleMatch") else ""
    of = f" of agent {source['agentId']}" if source.get("agentId") else ""
    return f"a run{titled}{of} {ends}"


def _names(source: Mapping[str, Any], key: str) -> str:
    return " or ".join(map(str, source.get(key) or ()))


def _below(source: Mapping[str, Any]) -> str:
    return f" below {source['resourcePrefix']}" if source.get("resourcePrefix") else ""
