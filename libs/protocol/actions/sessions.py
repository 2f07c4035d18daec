"""Actions on sessions, messages, attachments and uploads."""

from typing import Literal

from msgspec import UNSET, UnsetType

from ..base import Action, Json
from ..sessions import FileUploadTarget, MessageSessionContentPart, SessionListCursor, SessionModelOverride


class CreateSession(Action, kw_only=True):
    """Begin a conversation."""

    agent_id: str
    title: str | UnsetType = UNSET
    client_request_id: str | UnsetType = UNSET


class ListSessions(Action, kw_only=True):
    """A page of sessions, newest first."""

    agent_id: str | UnsetType = UNSET
    limit: int | float | UnsetType = UNSET
    cursor: SessionListCursor | UnsetType = UNSET
    parent_session_id: str | UnsetType = UNSET
    include_children: bool | UnsetType = UNSET


class UpdateSession(Action, kw_only=True):
    """Rename a session, or set or (None) clear its model override."""

    session_id: str
    title: str | UnsetType = UNSET
    model_override: SessionModelOverride | UnsetType | None = UNSET


class DeleteSession(Action, kw_only=True):
    """Delete a session."""

    session_id: str


class GetSession(Action, kw_only=True):
    """A session and its events."""

    session_id: str
    after_seq: int | UnsetType = UNSET


class MessageSession(Action, kw_only=True):
    """Say something; the answer comes when the turn ends or parks."""

    session_id: str
    content: list[MessageSessionContentPart]
    client_message_id: str | UnsetType = UNSET


class InvokeSessionTool(Action, kw_only=True):
    """Run a verb as the user."""

    session_id: str
    verb: Literal["read", "write", "call"]
    input: Json | UnsetType = UNSET


class UploadSessionAttachment(Action, kw_only=True):
    """Upload an attachment in one piece."""

    session_id: str
    name: str
    mime_type: str | UnsetType = UNSET
    content: bytes


class ReadSessionAttachment(Action, kw_only=True):
    """Read an attachment."""

    session_id: str
    attachment_id: str


class BeginFileUpload(Action, kw_only=True):
    """Begin an upload in chunks."""

    target: FileUploadTarget
    size: int


class AppendFileUploadChunk(Action, kw_only=True):
    """The next chunk of an upload."""

    upload_id: str
    offset: int
    content: bytes


class CommitFileUpload(Action, kw_only=True):
    """Finish an upload."""

    upload_id: str


class AbortFileUpload(Action, kw_only=True):
    """Discard an upload."""

    upload_id: str


class StopSession(Action, kw_only=True):
    """Cancel whatever runs in a session."""

    session_id: str


class RetrySession(Action, kw_only=True):
    """Run the failed turn again."""

    session_id: str
