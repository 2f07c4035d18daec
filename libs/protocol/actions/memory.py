"""Actions on memory files, tool documents and IPFS."""

from msgspec import UNSET, UnsetType

from ..base import Action, Json
from ..memory import AgentToolInput


class ListAgentMemory(Action, kw_only=True):
    """All memory entries of an agent."""

    agent_id: str


class ListAgentTools(Action, kw_only=True):
    """All tool documents of an agent."""

    agent_id: str


class SaveAgentTool(Action, kw_only=True):
    """Make, replace or rename an authored tool."""

    agent_id: str
    tool: AgentToolInput
    previous_name: str | UnsetType = UNSET


class DeleteAgentTool(Action, kw_only=True):
    """Delete an authored tool."""

    agent_id: str
    name: str


class ReadAgentMemoryFile(Action, kw_only=True):
    """Read a memory file."""

    agent_id: str
    path: str


class WriteAgentMemoryFile(Action, kw_only=True):
    """Write a whole memory file."""

    agent_id: str
    path: str
    content: Json
    """Text or bytes."""


class DeleteAgentMemoryFile(Action, kw_only=True):
    """Delete a memory file or directory."""

    agent_id: str
    path: str


class DownloadAgentMemoryFile(Action, kw_only=True):
    """Fetch a URL into memory."""

    agent_id: str
    url: str
    path: str | UnsetType = UNSET


class UploadAgentMemoryFileToIpfs(Action, kw_only=True):
    """Publish a memory file."""

    agent_id: str
    path: str
