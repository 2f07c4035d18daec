"""Answers about agents and their members."""

from msgspec import UNSET, UnsetType

from ..agents import AgentCollaboratorInfo, AgentInfo, AgentInviteInfo
from ..base import Response
from ..sessions import SessionInfo


class RegisterSignerResponse(Response, kw_only=True):
    """The key may sign for the account."""

    account_id: str
    signer_id: str


class ListAgentsResponse(Response, kw_only=True):
    """Answer to ListAgents."""

    agents: list[AgentInfo]


class ListAgentInvitesResponse(Response, kw_only=True):
    """Answer to ListAgentInvites."""

    invites: list[AgentInviteInfo]


class ListAgentCollaboratorsResponse(Response, kw_only=True):
    """Answer to ListAgentCollaborators; the owner comes first."""

    agent_id: str
    public_read: bool
    public_chat: bool | UnsetType = UNSET
    collaborators: list[AgentCollaboratorInfo]


class InviteAgentCollaboratorResponse(Response, kw_only=True):
    """Answer to InviteAgentCollaborator."""

    collaborator: AgentCollaboratorInfo


class RemoveAgentCollaboratorResponse(Response, kw_only=True):
    """Answer to RemoveAgentCollaborator."""

    agent_id: str
    account_id: str


class SetAgentPublicReadResponse(Response, kw_only=True):
    """Answer to SetAgentPublicRead."""

    agent: AgentInfo


class SetAgentPublicChatResponse(Response, kw_only=True):
    """Answer to SetAgentPublicChat."""

    agent: AgentInfo


class AcceptAgentInviteResponse(Response, kw_only=True):
    """Answer to AcceptAgentInvite."""

    agent: AgentInfo


class DeclineAgentInviteResponse(Response, kw_only=True):
    """Answer to DeclineAgentInvite."""

    agent_id: str


class CreateAgentResponse(Response, kw_only=True):
    """Answer to CreateAgent."""

    agent_id: str


class GetAgentResponse(Response, kw_only=True):
    """Answer to GetAgent and UpdateAgent."""

    agent: AgentInfo
    sessions: list[SessionInfo]
    session_count: int | UnsetType = UNSET


class DeleteAgentResponse(Response, kw_only=True):
    """Answer to DeleteAgent."""

    agent_id: str
