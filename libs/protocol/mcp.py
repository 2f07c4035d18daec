"""Remote tool servers of an account."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .base import OpenMap, Wire

McpServerTransport = Literal["http", "sse"]


class McpServerConfig(Wire, kw_only=True):
    """How to reach a server."""

    url: str
    transport: McpServerTransport | UnsetType = UNSET
    """Absent: Streamable HTTP first, then SSE."""
    headers: dict[str, str] | UnsetType = UNSET
    secret_refs: dict[str, str] | UnsetType = UNSET
    """Header name to the name of the secret that holds its value."""


class McpToolInfo(Wire, kw_only=True):
    """A tool of a server."""

    name: str
    """Name on the server."""
    tool_name: str
    """Name the agent calls it by."""
    description: str | UnsetType = UNSET
    input_schema: OpenMap | UnsetType = UNSET


class McpServerStatus(Wire, kw_only=True):
    """Outcome of the newest discovery."""

    state: Literal["ok", "error", "unknown"]
    error: str | UnsetType = UNSET
    checked_at: int | UnsetType = UNSET


class RedactedMcpServer(Wire, kw_only=True):
    """A stored server without its header values."""

    id: str
    name: str
    url: str
    transport: McpServerTransport
    header_names: list[str]
    secret_header_names: list[str]
    has_secrets: bool
    tools: list[McpToolInfo]
    status: McpServerStatus
    created_at: int
    updated_at: int
