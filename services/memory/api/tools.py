"""ToolDocumentsService."""

from __future__ import annotations

from services.memory.api.access import AgentAccess


class ToolDocumentsApi:
    """Serves tool documents."""

    def __init__(self, access: AgentAccess) -> None:
        self._access = access
