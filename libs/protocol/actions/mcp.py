"""Actions on remote tool servers."""

from ..base import Action
from ..mcp import McpServerConfig


class ListMcpServers(Action, kw_only=True):
    """The tool servers of the account."""


class SetMcpServer(Action, kw_only=True):
    """Store a tool server and discover its tools."""

    name: str
    config: McpServerConfig


class RefreshMcpServer(Action, kw_only=True):
    """Discover the tools of a server again."""

    name: str


class DeleteMcpServer(Action, kw_only=True):
    """Delete a tool server."""

    name: str
