"""MembersService."""

from __future__ import annotations

from seed.sessions.v1 import members_pb2 as pb

from libs.audit import Actor
from libs.rpc import Caller
from services.sessions.domain import access, members
from services.sessions.domain.ids import named
from services.sessions.store.access import AccessStore
from services.sessions.store.members import MemberStore


def _agent_id(value: str, noun: str = "Agent") -> str:
    return named(value, "Agent ID", noun)


def _actor(caller: Caller) -> Actor:
    return Actor(caller.account, caller.signer, caller.service)


class MembersApi:
    """Serves collaborators, invitations and public access."""

    def __init__(self, access: AccessStore, members: MemberStore) -> None:
        self._access, self._members = access, members

    async def ListAgentInvites(
        self, request: pb.ListAgentInvitesRequest, caller: Caller
    ) -> pb.ListAgentInvitesResponse:
        """The account's pending invitations."""
        return pb.ListAgentInvitesResponse(invites=await self._members.invites(caller.account))

    async def ListAgentCollaborators(
        self, request: pb.ListAgentCollaboratorsRequest, caller: Caller
    ) -> pb.ListAgentCollaboratorsResponse:
        """The owner and the members; pending ones only for the owner."""
        found = await self._access.agent(caller.account, _agent_id(request.agent_id))
        return await self._members.collaborators(found.agent_id, found.role)

    async def InviteAgentCollaborator(
        self, request: pb.InviteAgentCollaboratorRequest, caller: Caller
    ) -> pb.InviteAgentCollaboratorResponse:
        """Invite an account, or change the role of one."""
        found = await self._access.agent(caller.account, _agent_id(request.agent_id), access.OWNER)
        role, account = members.invitation(request.role, request.account_id, found.owner)
        collaborator = await self._members.invite(_actor(caller), found.owner, found.agent_id, account, role)
        return pb.InviteAgentCollaboratorResponse(collaborator=collaborator)

    async def RemoveAgentCollaborator(
        self, request: pb.RemoveAgentCollaboratorRequest, caller: Caller
    ) -> pb.RemoveAgentCollaboratorResponse:
        """Remove a member or an invitation."""
        found = await self._access.agent(caller.account, _agent_id(request.agent_id), access.OWNER)
        account = named(request.account_id, "Account ID", "Collaborator")
        await self._members.remove(_actor(caller), found.owner, found.agent_id, account)
        return pb.RemoveAgentCollaboratorResponse(agent_id=found.agent_id, account_id=account)

    async def AcceptAgentInvite(
        self, request: pb.AcceptAgentInviteRequest, caller: Caller
    ) -> pb.AcceptAgentInviteResponse:
        """Join an agent."""
        agent_id = _agent_id(request.agent_id, "Agent invitation")
        return pb.AcceptAgentInviteResponse(agent=await self._members.accept(_actor(caller), agent_id))

    async def DeclineAgentInvite(
        self, request: pb.DeclineAgentInviteRequest, caller: Caller
    ) -> pb.DeclineAgentInviteResponse:
        """Decline an invitation."""
        agent_id = _agent_id(request.agent_id, "Agent invitation")
        await self._members.decline(_actor(caller), agent_id)
        return pb.DeclineAgentInviteResponse(agent_id=agent_id)

    async def SetAgentPublicRead(
        self, request: pb.SetAgentPublicReadRequest, caller: Caller
    ) -> pb.SetAgentPublicReadResponse:
        """Open or close public reading."""
        found = await self._access.agent(caller.account, _agent_id(request.agent_id), access.OWNER)
        agent = await self._members.set_public_read(_actor(caller), found.agent_id, request.public_read)
        return pb.SetAgentPublicReadResponse(agent=agent)

    async def SetAgentPublicChat(
        self, request: pb.SetAgentPublicChatRequest, caller: Caller
    ) -> pb.SetAgentPublicChatResponse:
        """Open or close public chat."""
        found = await self._access.agent(caller.account, _agent_id(request.agent_id), access.OWNER)
        agent = await self._members.set_public_chat(_actor(caller), found.agent_id, request.public_chat)
        return pb.SetAgentPublicChatResponse(agent=agent)
