"""Sessions, their events, attachments and uploads."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .agents import AgentMessageBlock, AgentPromptBlock, ReasoningLevel
from .base import Json, OpenMap, Wire
from .runs import AgentRunUsage, RunPlan
from .triggers import AgentActivityCondition, AgentTriggerSource

SessionStatus = Literal["idle", "streaming", "stopped", "error"]
SessionActor = Literal["user", "agent", "system", "trigger"]
SessionContinuationReason = Literal[
    "topic_change", "phase_change", "refocus", "context_pressure", "user_request", "other"
]


class TextPart(Wire, kw_only=True, tag_field="type", tag="text"):
    """Text of a message."""

    text: str
    blocks: list[AgentMessageBlock] | UnsetType = UNSET
    client_message_id: str | UnsetType = UNSET


class ContextPart(Wire, kw_only=True, tag_field="type", tag="context"):
    """Lines about what the user has on screen."""

    lines: list[str]


class AttachmentPart(Wire, kw_only=True, tag_field="type", tag="attachment"):
    """A reference to an uploaded attachment."""

    id: str


MessageSessionContentPart = TextPart | ContextPart | AttachmentPart


class SessionAttachmentInfo(Wire, kw_only=True):
    """An attachment of a session."""

    id: str
    """SHA-256 of the bytes, lower-case hex."""
    session_id: str
    name: str
    mime_type: str | UnsetType = UNSET
    size: int
    created_at: int


class MemoryUploadTarget(Wire, kw_only=True, tag_field="kind", tag="memory"):
    """An upload that becomes a memory file."""

    agent_id: str
    path: str


class AttachmentUploadTarget(Wire, kw_only=True, tag_field="kind", tag="session-attachment"):
    """An upload that becomes an attachment."""

    session_id: str
    name: str
    mime_type: str | UnsetType = UNSET


FileUploadTarget = MemoryUploadTarget | AttachmentUploadTarget


class SessionListCursor(Wire, kw_only=True):
    """Where a page of sessions ended."""

    updated_before: int
    id_before: str


class SessionModelOverride(Wire, kw_only=True):
    """Another model for one session."""

    provider: str
    model: str
    reasoning_level: ReasoningLevel | UnsetType = UNSET


class AgentSessionTriggerSummary(Wire, kw_only=True):
    """The firing that started a session."""

    trigger_id: str
    trigger_name: str
    firing_id: str
    activity_key: str
    activity_summary: str
    source: AgentTriggerSource
    fired_at: int
    matched_conditions: list[AgentActivityCondition] | UnsetType = UNSET


class AgentSessionTriggerContext(AgentSessionTriggerSummary, kw_only=True):
    """The firing with what it gave the agent."""

    prompt: str
    """Markdown."""
    prompt_blocks: list[AgentPromptBlock] | UnsetType = UNSET
    activity: OpenMap
    status: str
    error: str | UnsetType = UNSET


class SessionContinuationLink(Wire, kw_only=True):
    """The session before or after one that was continued."""

    continuation_id: str
    session_id: str
    title: str | UnsetType = UNSET
    """The title it had when the session was continued."""
    reason: SessionContinuationReason
    created_at: int


class SessionInfo(Wire, kw_only=True):
    """A session."""

    id: str
    account: str
    agent_id: str
    title: str | UnsetType = UNSET
    status: SessionStatus
    created_at: int
    updated_at: int
    started_by_trigger: AgentSessionTriggerSummary | UnsetType = UNSET
    parent_session_id: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    plan: RunPlan | UnsetType = UNSET
    child_session_count: int | UnsetType = UNSET
    """Absent when zero."""
    model_override: SessionModelOverride | UnsetType = UNSET
    description: str | UnsetType = UNSET
    continued_from: SessionContinuationLink | UnsetType = UNSET
    continued_to: SessionContinuationLink | UnsetType = UNSET
    """The newest session that goes on from this one."""


class SessionEventOrigin(Wire, kw_only=True):
    """Where a copied message stood."""

    session_id: str
    event_id: str
    seq: int


class SessionEventMeta(Wire, kw_only=True):
    """Who or what made an event."""

    account_id: str | UnsetType = UNSET
    signer_id: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    usage: AgentRunUsage | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET
    continued_from: SessionEventOrigin | UnsetType = UNSET


class MessageEvent(Wire, kw_only=True, tag_field="type", tag="message"):
    """A message."""

    role: Literal["user", "assistant", "tool"]
    content: str
    tool_call_id: str | UnsetType = UNSET
    raw_markdown: str | UnsetType = UNSET
    blocks: list[AgentMessageBlock] | UnsetType = UNSET
    context_lines: list[str] | UnsetType = UNSET
    attachments: list[SessionAttachmentInfo] | UnsetType = UNSET
    client_message_id: str | UnsetType = UNSET
    actor: SessionActor | UnsetType = UNSET
    meta: SessionEventMeta | UnsetType = UNSET


class ToolCallEvent(Wire, kw_only=True, tag_field="type", tag="tool_call"):
    """A tool call begins."""

    id: str
    name: str
    input: Json
    actor: SessionActor | UnsetType = UNSET


class ToolResultEvent(Wire, kw_only=True, tag_field="type", tag="tool_result"):
    """A tool call ended: exactly one of `output` and `error`."""

    tool_call_id: str
    name: str
    output: Json | UnsetType = UNSET
    error: str | UnsetType = UNSET
    actor: SessionActor | UnsetType = UNSET
    meta: SessionEventMeta | UnsetType = UNSET


class ErrorEvent(Wire, kw_only=True, tag_field="type", tag="error"):
    """A turn failed."""

    message: str
    actor: SessionActor | UnsetType = UNSET


KnownSessionEventPayload = MessageEvent | ToolCallEvent | ToolResultEvent | ErrorEvent


class SessionEvent(Wire, kw_only=True):
    """An event of a session at its place. Readers tolerate payloads of other types, so the payload is open."""

    id: str
    session_id: str
    seq: int
    event: OpenMap
    created_at: int
