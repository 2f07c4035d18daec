"""Answers about remote tool servers."""

from ..base import Response
from ..mcp import RedactedMcpServer


class ListMcpServersResponse(Response, kw_only=True):
    """Answer to ListMcpServers."""

    servers: list[RedactedMcpServer]


class SetMcpServerResponse(Response, kw_only=True):
    """Answer to SetMcpServer and RefreshMcpServer."""

    server: RedactedMcpServer


class DeleteMcpServerResponse(Response, kw_only=True):
    """Answer to DeleteMcpServer."""

    name: str
