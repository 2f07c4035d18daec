"""Answers about memory files, tool documents and IPFS."""

from msgspec import UNSET, UnsetType

from ..base import Response
from ..memory import AgentMemoryEntry, AgentMemoryFile, AgentToolInfo


class ListAgentMemoryResponse(Response, kw_only=True):
    """Answer to ListAgentMemory."""

    agent_id: str
    entries: list[AgentMemoryEntry]
    total_bytes: int


class ListAgentToolsResponse(Response, kw_only=True):
    """Answer to ListAgentTools."""

    agent_id: str
    tools: list[AgentToolInfo]


class SaveAgentToolResponse(Response, kw_only=True):
    """Answer to SaveAgentTool."""

    agent_id: str
    tool: AgentToolInfo


class DeleteAgentToolResponse(Response, kw_only=True):
    """Answer to DeleteAgentTool."""

    agent_id: str
    name: str
    deleted: bool


class ReadAgentMemoryFileResponse(Response, kw_only=True):
    """Answer to ReadAgentMemoryFile."""

    agent_id: str
    file: AgentMemoryFile


class WriteAgentMemoryFileResponse(Response, kw_only=True):
    """Answer to WriteAgentMemoryFile."""

    agent_id: str
    entry: AgentMemoryEntry


class DeleteAgentMemoryFileResponse(Response, kw_only=True):
    """Answer to DeleteAgentMemoryFile."""

    agent_id: str
    path: str
    deleted: bool


class DownloadAgentMemoryFileResponse(Response, kw_only=True):
    """Answer to DownloadAgentMemoryFile."""

    agent_id: str
    entry: AgentMemoryEntry
    final_url: str
    content_type: str | UnsetType = UNSET


class UploadAgentMemoryFileToIpfsResponse(Response, kw_only=True):
    """Answer to UploadAgentMemoryFileToIpfs."""

    agent_id: str
    path: str
    cid: str
    url: str
    size: int
    mime_type: str | UnsetType = UNSET
