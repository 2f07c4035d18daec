"""Triggers: what wakes an agent, and what it does then."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .agents import PromptValue
from .base import Json, Wire


class DocumentCommentSource(Wire, kw_only=True, tag_field="type", tag="document-comment"):
    """A comment on a document."""

    resource: str
    author: str | UnsetType = UNSET


class UserMentionSource(Wire, kw_only=True, tag_field="type", tag="user-mention"):
    """A mention of one of the accounts."""

    mentioned_accounts: list[str]
    resource_prefix: str | UnsetType = UNSET


class CommentReplySource(Wire, kw_only=True, tag_field="type", tag="comment-reply"):
    """A reply to a comment of one of the accounts."""

    replied_to_accounts: list[str]
    resource_prefix: str | UnsetType = UNSET


class DocumentAuthorCommentSource(Wire, kw_only=True, tag_field="type", tag="document-author-comment"):
    """A comment on a document of one of the authors."""

    document_authors: list[str]
    resource_prefix: str | UnsetType = UNSET


class SiteUpdateSource(Wire, kw_only=True, tag_field="type", tag="site-update"):
    """A change below a path of a site."""

    resource_prefix: str
    event_types: list[str] | UnsetType = UNSET


AgentActivitySource = (
    DocumentCommentSource | UserMentionSource | CommentReplySource | DocumentAuthorCommentSource | SiteUpdateSource
)


class AgentActivityCondition(Wire, kw_only=True):
    """One condition of a compound source."""

    id: str
    source: AgentActivitySource


class ActivityConditionsSource(Wire, kw_only=True, tag_field="type", tag="activity"):
    """Any of 1 to 32 conditions. Needs protocol 3."""

    conditions: list[AgentActivityCondition]


class WebhookSource(Wire, kw_only=True, tag_field="type", tag="webhook"):
    """A call from outside."""


class IntervalSchedule(Wire, kw_only=True, tag_field="kind", tag="interval"):
    """Every so many minutes or hours."""

    every: int
    unit: Literal["minutes", "hours"]


class WeeklySchedule(Wire, kw_only=True, tag_field="kind", tag="weekly"):
    """At a time of day on days of the week, 0 being Sunday."""

    days_of_week: list[int]
    time_of_day: str
    """`HH:MM`."""
    timezone: str
    """IANA name."""


class OnceSchedule(Wire, kw_only=True, tag_field="kind", tag="once"):
    """Once, at `run_at`."""

    run_at: int
    timezone: str | UnsetType = UNSET


AgentScheduleTrigger = IntervalSchedule | WeeklySchedule | OnceSchedule


class ScheduleSource(Wire, kw_only=True, tag_field="type", tag="schedule"):
    """The clock."""

    schedule: AgentScheduleTrigger


class RunCompletedSource(Wire, kw_only=True, tag_field="type", tag="run-completed"):
    """The end of a run."""

    agent_id: str | UnsetType = UNSET
    status: Literal["succeeded", "failed", "canceled"] | UnsetType = UNSET
    title_match: str | UnsetType = UNSET


AgentTriggerSource = (
    DocumentCommentSource
    | UserMentionSource
    | CommentReplySource
    | DocumentAuthorCommentSource
    | SiteUpdateSource
    | ActivityConditionsSource
    | WebhookSource
    | ScheduleSource
    | RunCompletedSource
)


class UserMentionSourceInput(Wire, kw_only=True, tag_field="type", tag="user-mention"):
    """A user mention as clients send it: `mentioned_accounts`, or the legacy single `mentioned_account`."""

    mentioned_accounts: list[str] | UnsetType = UNSET
    mentioned_account: str | UnsetType = UNSET
    resource_prefix: str | UnsetType = UNSET


AgentActivitySourceInput = (
    DocumentCommentSource | UserMentionSourceInput | CommentReplySource | DocumentAuthorCommentSource | SiteUpdateSource
)


class AgentActivityConditionInput(Wire, kw_only=True):
    """A condition as clients send it; the server gives ids to those without."""

    id: str | UnsetType = UNSET
    source: AgentActivitySourceInput


class ActivityConditionsSourceInput(Wire, kw_only=True, tag_field="type", tag="activity"):
    """A compound source as clients send it."""

    conditions: list[AgentActivityConditionInput]


AgentTriggerSourceInput = (
    DocumentCommentSource
    | UserMentionSourceInput
    | CommentReplySource
    | DocumentAuthorCommentSource
    | SiteUpdateSource
    | ActivityConditionsSourceInput
    | WebhookSource
    | ScheduleSource
    | RunCompletedSource
)


class NewThread(Wire, kw_only=True, tag_field="kind", tag="newThread"):
    """A firing starts a session of its own."""


class Wake(Wire, kw_only=True, tag_field="kind", tag="wake"):
    """A firing signals a waiting run."""

    signal: str
    run_id: str | UnsetType = UNSET
    payload: Json | UnsetType = UNSET


TriggerContinuation = NewThread | Wake


class AgentTriggerInput(Wire, kw_only=True):
    """A new trigger."""

    name: str
    enabled: bool | UnsetType = UNSET
    """Default true."""
    source: AgentTriggerSourceInput
    prompt: PromptValue
    continuation: TriggerContinuation | UnsetType = UNSET
    """Default `NewThread`."""


class AgentTriggerPatch(Wire, kw_only=True):
    """Changes to a trigger; at least one key."""

    name: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    source: AgentTriggerSourceInput | UnsetType = UNSET
    prompt: PromptValue | UnsetType = UNSET
    continuation: TriggerContinuation | UnsetType = UNSET


class AgentTriggerFiring(Wire, kw_only=True):
    """One time that a trigger fired."""

    firing_id: str
    session_id: str | UnsetType = UNSET
    status: Literal["created", "delivered", "no-listener", "error"]
    error: str | UnsetType = UNSET
    fired_at: int
    activity_key: str | UnsetType = UNSET
    """Absent for what is no activity."""
    activity_summary: str
    matched_conditions: list[AgentActivityCondition] | UnsetType = UNSET


class AgentTriggerInfo(Wire, kw_only=True):
    """A stored trigger."""

    id: str
    account: str
    agent_id: str
    name: str
    enabled: bool
    source: AgentTriggerSource
    prompt: PromptValue
    continuation: TriggerContinuation | UnsetType = UNSET
    merged_into: str | UnsetType = UNSET
    """Id of the surviving trigger; one that has it is disabled and immutable."""
    created_at: int
    updated_at: int
    last_checked_at: int | UnsetType = UNSET
    last_fired_at: int | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
