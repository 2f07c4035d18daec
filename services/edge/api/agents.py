"""Agents and their members."""

from __future__ import annotations

from seed.sessions.v1 import agents_pb2 as ag
from seed.sessions.v1 import members_pb2 as mb

from libs.errors import Invalid
from libs.protocol import responses as out
from services.edge.api import views
from services.edge.api.call import Call, Handler
from services.edge.domain.shims import sessions_for
from services.edge.upstream import Peers


class AgentActions:
    """Handlers of the agents area; sessions owns the data."""

    def __init__(self, peers: Peers) -> None:
        self._peer, self._agents, self._members = peers.sessions, peers.agents_stub, peers.members_stub

    def handlers(self) -> dict[str, Handler]:
        """The actions served here."""
        return {
            "ListAgents": self.list_agents,
            "CreateAgent": self.create_agent,
            "GetAgent": self.get_agent,
            "UpdateAgent": self.update_agent,
            "DeleteAgent": self.delete_agent,
            "ListAgentInvites": self.list_invites,
            "ListAgentCollaborators": self.list_collaborators,
            "InviteAgentCollaborator": self.invite,
            "RemoveAgentCollaborator": self.remove,
            "AcceptAgentInvite": self.accept,
            "DeclineAgentInvite": self.decline,
            "SetAgentPublicRead": self.set_public_read,
            "SetAgentPublicChat": self.set_public_chat,
        }

    async def list_agents(self, call: Call) -> out.ListAgentsResponse:
        """ListAgents."""
        r = await call.read(self._peer, self._agents.ListAgents, ag.ListAgentsRequest())
        return out.ListAgentsResponse(agents=[views.agent(a) for a in r.agents])

    async def create_agent(self, call: Call) -> out.CreateAgentResponse:
        """CreateAgent."""
        request = ag.CreateAgentRequest(
            definition=call.cbor("definition") or b"", client_request_id=call.optional_text("clientRequestId")
        )
        r = await call.write(self._peer, self._agents.CreateAgent, request)
        return out.CreateAgentResponse(agent_id=r.agent_id)

    async def get_agent(self, call: Call) -> out.GetAgentResponse:
        """GetAgent."""
        r = await call.read(self._peer, self._agents.GetAgent, ag.GetAgentRequest(agent_id=call.text("agentId")))
        return _with_sessions(call, r)

    async def update_agent(self, call: Call) -> out.GetAgentResponse:
        """UpdateAgent."""
        request = ag.UpdateAgentRequest(agent_id=call.text("agentId"), definition=call.cbor("definition") or b"")
        return _with_sessions(call, await call.write(self._peer, self._agents.UpdateAgent, request))

    async def delete_agent(self, call: Call) -> out.DeleteAgentResponse:
        """DeleteAgent."""
        request = ag.DeleteAgentRequest(agent_id=call.text("agentId"))
        r = await call.write(self._peer, self._agents.DeleteAgent, request)
        return out.DeleteAgentResponse(agent_id=r.agent_id)

    async def list_invites(self, call: Call) -> out.ListAgentInvitesResponse:
        """ListAgentInvites."""
        r = await call.read(self._peer, self._members.ListAgentInvites, mb.ListAgentInvitesRequest())
        return out.ListAgentInvitesResponse(invites=[views.invite(i) for i in r.invites])

    async def list_collaborators(self, call: Call) -> out.ListAgentCollaboratorsResponse:
        """ListAgentCollaborators."""
        request = mb.ListAgentCollaboratorsRequest(agent_id=call.text("agentId"))
        r = await call.read(self._peer, self._members.ListAgentCollaborators, request)
        return out.ListAgentCollaboratorsResponse(
            agent_id=r.agent_id,
            public_read=r.public_read,
            public_chat=r.public_chat,
            collaborators=[views.collaborator(c) for c in r.collaborators],
        )

    async def invite(self, call: Call) -> out.InviteAgentCollaboratorResponse:
        """InviteAgentCollaborator."""
        request = mb.InviteAgentCollaboratorRequest(
            agent_id=call.text("agentId"), account_id=call.text("accountId"), role=call.text("role")
        )
        r = await call.write(self._peer, self._members.InviteAgentCollaborator, request)
        return out.InviteAgentCollaboratorResponse(collaborator=views.collaborator(r.collaborator))

    async def remove(self, call: Call) -> out.RemoveAgentCollaboratorResponse:
        """RemoveAgentCollaborator."""
        request = mb.RemoveAgentCollaboratorRequest(agent_id=call.text("agentId"), account_id=call.text("accountId"))
        r = await call.write(self._peer, self._members.RemoveAgentCollaborator, request)
        return out.RemoveAgentCollaboratorResponse(agent_id=r.agent_id, account_id=r.account_id)

    async def accept(self, call: Call) -> out.AcceptAgentInviteResponse:
        """AcceptAgentInvite."""
        request = mb.AcceptAgentInviteRequest(agent_id=call.text("agentId"))
        r = await call.write(self._peer, self._members.AcceptAgentInvite, request)
        return out.AcceptAgentInviteResponse(agent=views.agent(r.agent))

    async def decline(self, call: Call) -> out.DeclineAgentInviteResponse:
        """DeclineAgentInvite."""
        request = mb.DeclineAgentInviteRequest(agent_id=call.text("agentId"))
        r = await call.write(self._peer, self._members.DeclineAgentInvite, request)
        return out.DeclineAgentInviteResponse(agent_id=r.agent_id)

    async def set_public_read(self, call: Call) -> out.SetAgentPublicReadResponse:
        """SetAgentPublicRead."""
        request = mb.SetAgentPublicReadRequest(agent_id=call.text("agentId"), public_read=_switch(call, "publicRead"))
        r = await call.write(self._peer, self._members.SetAgentPublicRead, request)
        return out.SetAgentPublicReadResponse(agent=views.agent(r.agent))

    async def set_public_chat(self, call: Call) -> out.SetAgentPublicChatResponse:
        """SetAgentPublicChat."""
        request = mb.SetAgentPublicChatRequest(agent_id=call.text("agentId"), public_chat=_switch(call, "publicChat"))
        r = await call.write(self._peer, self._members.SetAgentPublicChat, request)
        return out.SetAgentPublicChatResponse(agent=views.agent(r.agent))


def _with_sessions(call: Call, r: ag.GetAgentResponse | ag.UpdateAgentResponse) -> out.GetAgentResponse:
    sessions = sessions_for(call.protocol, [views.session(s) for s in r.sessions])
    return out.GetAgentResponse(agent=views.agent(r.agent), sessions=sessions, session_count=len(sessions))


def _switch(call: Call, key: str) -> bool:
    value = call.action.get(key)
    if not isinstance(value, bool):
        raise Invalid(f"{key} must be a boolean")
    return value
