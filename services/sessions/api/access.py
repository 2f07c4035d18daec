"""AccessService."""

from __future__ import annotations

from seed.sessions.v1 import access_pb2 as pb

from libs.errors import Invalid
from libs.rpc import Caller
from services.sessions.domain.access import READER
from services.sessions.domain.ids import named
from services.sessions.store.access import AccessStore


class AccessApi:
    """Serves who may do what."""

    def __init__(self, access: AccessStore) -> None:
        self._access = access

    async def ResolveAccess(self, request: pb.ResolveAccessRequest, caller: Caller) -> pb.ResolveAccessResponse:
        """Role of the calling account on an agent, or on the agent of a session."""
        need = request.need or READER
        match request.WhichOneof("subject"):
            case "agent_id":
                noun = request.noun or "Agent"
                agent_id = named(request.agent_id, "Agent ID", noun)
                find = self._access.defined if request.with_definition else self._access.agent
                found = await find(caller.account, agent_id, need, noun)
            case "session_id":
                noun = request.noun or "Session"
                session_id = named(request.session_id, "Session ID", noun)
                found = await self._access.session(caller.account, session_id, need, noun)
            case _:
                raise Invalid("Access is asked for an agent or a session")
        return pb.ResolveAccessResponse(
            agent_id=found.agent_id,
            owner=found.owner,
            role=found.role,
            member=found.member,
            definition=found.definition,
        )

    async def ListMemberships(self, request: pb.ListMembershipsRequest, caller: Caller) -> pb.ListMembershipsResponse:
        """Agents of others that the calling account has joined."""
        rows = await self._access.memberships(caller.account)
        return pb.ListMembershipsResponse(
            memberships=[pb.Membership(agent_id=r["agent_id"], owner=r["owner"], role=r["role"]) for r in rows]
        )
