"""TriggersService."""

from __future__ import annotations

from seed.triggers.v1 import triggers_pb2 as pb

from libs.rpc import Caller
from services.triggers.api.access import READER, AgentAccess
from services.triggers.store.rows import trigger_of
from services.triggers.store.triggers import TriggerStore


class TriggersApi:
    """Serves triggers of one database."""

    def __init__(self, access: AgentAccess, triggers: TriggerStore) -> None:
        self._access, self._triggers = access, triggers

    async def ListTriggers(self, request: pb.ListTriggersRequest, caller: Caller) -> pb.ListTriggersResponse:
        """The triggers of an agent."""
        access = await self._access.of(caller, request.agent_id, READER)
        rows = await self._triggers.of_agent(access.agent_id)
        return pb.ListTriggersResponse(triggers=[trigger_of(row) for row in rows])
