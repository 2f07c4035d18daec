"""Answers about sessions, messages, attachments and uploads."""

from msgspec import UNSET, UnsetType

from ..agents import AgentInfo
from ..base import Json, Response
from ..memory import AgentMemoryEntry
from ..sessions import AgentSessionTriggerContext, SessionAttachmentInfo, SessionEvent, SessionInfo, SessionListCursor


class CreateSessionResponse(Response, kw_only=True):
    """Answer to CreateSession."""

    session_id: str


class ListSessionsResponse(Response, kw_only=True):
    """Answer to ListSessions."""

    sessions: list[SessionInfo]
    agents: list[AgentInfo]
    next_cursor: SessionListCursor | UnsetType = UNSET


class UpdateSessionResponse(Response, kw_only=True):
    """Answer to UpdateSession."""

    session: SessionInfo


class DeleteSessionResponse(Response, kw_only=True):
    """Answer to DeleteSession."""

    session_id: str
    agent_id: str


class GetSessionResponse(Response, kw_only=True):
    """Answer to GetSession."""

    session: SessionInfo
    events: list[SessionEvent]
    system_prompt_markdown: str
    trigger_context: AgentSessionTriggerContext | UnsetType = UNSET


class MessageSessionResponse(Response, kw_only=True):
    """Answer to MessageSession."""

    session_id: str
    assistant_event_id: str
    """Empty when no final assistant event existed when the request returned."""
    continued_to_session_id: str | UnsetType = UNSET
    """The session that answers instead, when the turn continued its own."""


class InvokeSessionToolResponse(Response, kw_only=True):
    """Answer to InvokeSessionTool: exactly one of `output` and `error`."""

    session_id: str
    result_event_id: str
    output: Json | UnsetType = UNSET
    error: str | UnsetType = UNSET


class UploadSessionAttachmentResponse(Response, kw_only=True):
    """Answer to UploadSessionAttachment."""

    attachment: SessionAttachmentInfo


class ReadSessionAttachmentResponse(Response, kw_only=True):
    """Answer to ReadSessionAttachment."""

    attachment: SessionAttachmentInfo
    data: bytes


class BeginFileUploadResponse(Response, kw_only=True):
    """Answer to BeginFileUpload."""

    upload_id: str
    max_chunk_bytes: int


class AppendFileUploadChunkResponse(Response, kw_only=True):
    """Answer to AppendFileUploadChunk."""

    upload_id: str
    received: int


class CommitFileUploadResponse(Response, kw_only=True):
    """Answer to CommitFileUpload: `entry` for memory, `attachment` for a session."""

    entry: AgentMemoryEntry | UnsetType = UNSET
    attachment: SessionAttachmentInfo | UnsetType = UNSET


class AbortFileUploadResponse(Response, kw_only=True):
    """Answer to AbortFileUpload."""

    upload_id: str


class StopSessionResponse(Response, kw_only=True):
    """Answer to StopSession; not stopped when nothing ran."""

    session_id: str
    stopped: bool


class RetrySessionResponse(Response, kw_only=True):
    """Answer to RetrySession."""

    session_id: str
    assistant_event_id: str
