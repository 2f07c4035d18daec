"""MemoryService."""

from __future__ import annotations

from services.memory.api.access import AgentAccess


class MemoryApi:
    """Serves memory files."""

    def __init__(self, access: AgentAccess) -> None:
        self._access = access
