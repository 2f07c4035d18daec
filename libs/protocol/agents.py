"""Agents, their members and their definitions."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .base import OpenMap, Wire

AgentCollaboratorRole = Literal["reader", "writer"]
AgentAccessRole = Literal["owner", "writer", "chatter", "reader"]
AgentStatus = Literal["idle", "running", "stopped", "error"]
ReasoningLevel = Literal["minimal", "low", "medium", "high", "xhigh"]


class AgentPromptBlock(Wire, kw_only=True):
    """A block of rich text and the blocks below it."""

    block: OpenMap
    """At least `id` and `type`, both text."""
    children: "list[AgentPromptBlock] | UnsetType | None" = UNSET


AgentMessageBlock = AgentPromptBlock
PromptValue = str | list[AgentPromptBlock]
"""Markdown or blocks on the way in; always blocks in an `AgentDefinition` on the way out."""


class AgentModelRef(Wire, kw_only=True):
    """One entry of the quick-switch list."""

    provider: str
    model: str


class AgentDefinition(Wire, kw_only=True):
    """What an agent is: prompt, model, grants."""

    name: str
    system_prompt: PromptValue
    model_provider: str
    model: str
    reasoning_level: ReasoningLevel | UnsetType = UNSET
    enabled_models: list[AgentModelRef] | UnsetType = UNSET
    tools: list[str] | UnsetType = UNSET
    """The grants; absent means everything."""
    mcp_servers: list[str] | UnsetType = UNSET
    signing_key: str | UnsetType = UNSET
    """Legacy form of a single signing key."""
    signing_keys: list[str] | UnsetType = UNSET
    metadata: OpenMap | UnsetType = UNSET


class AgentInfo(Wire, kw_only=True):
    """An agent as one reader sees it."""

    id: str
    account: str
    definition: AgentDefinition
    state_dir: str
    """Opaque."""
    status: AgentStatus
    created_at: int
    updated_at: int
    access_role: AgentAccessRole | UnsetType = UNSET
    public_read: bool | UnsetType = UNSET
    public_chat: bool | UnsetType = UNSET


class AgentCollaboratorInfo(Wire, kw_only=True):
    """A member of an agent, or an account invited to it."""

    account_id: str
    role: Literal["owner", "reader", "writer"]
    status: Literal["accepted", "pending"]
    created_at: int
    updated_at: int


class AgentInviteInfo(Wire, kw_only=True):
    """An open invitation as the invited account sees it."""

    agent_id: str
    agent_name: str
    owner_account_id: str
    role: AgentCollaboratorRole
    created_at: int
    updated_at: int
