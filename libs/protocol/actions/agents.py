"""Actions on agents and their members."""

from msgspec import UNSET, UnsetType

from ..agents import AgentCollaboratorRole, AgentDefinition
from ..base import Action


class RegisterSigner(Action, kw_only=True):
    """Let the signing key act for the account that made the capability."""

    capability: bytes
    """DAG-CBOR of a `CapabilityBlob`."""


class ListAgents(Action, kw_only=True):
    """The agents the account owns or has joined."""


class ListAgentInvites(Action, kw_only=True):
    """Open invitations to the account."""


class ListAgentCollaborators(Action, kw_only=True):
    """The members of an agent."""

    agent_id: str


class InviteAgentCollaborator(Action, kw_only=True):
    """Invite an account, or change the role of one."""

    agent_id: str
    account_id: str
    role: AgentCollaboratorRole


class RemoveAgentCollaborator(Action, kw_only=True):
    """Remove a member or take an invitation back."""

    agent_id: str
    account_id: str


class SetAgentPublicRead(Action, kw_only=True):
    """Open an agent to every reader, or close it."""

    agent_id: str
    public_read: bool


class SetAgentPublicChat(Action, kw_only=True):
    """Let every reader of a public agent chat, or stop that."""

    agent_id: str
    public_chat: bool


class AcceptAgentInvite(Action, kw_only=True):
    """Join an agent."""

    agent_id: str


class DeclineAgentInvite(Action, kw_only=True):
    """Refuse an invitation."""

    agent_id: str


class CreateAgent(Action, kw_only=True):
    """Make an agent."""

    definition: AgentDefinition
    client_request_id: str | UnsetType = UNSET


class GetAgent(Action, kw_only=True):
    """An agent and its sessions."""

    agent_id: str


class UpdateAgent(Action, kw_only=True):
    """Replace the definition of an agent."""

    agent_id: str
    definition: AgentDefinition


class DeleteAgent(Action, kw_only=True):
    """Delete an agent with everything it has."""

    agent_id: str
