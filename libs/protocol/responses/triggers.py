"""Answers about triggers."""

from msgspec import UNSET, UnsetType

from ..base import Response
from ..sessions import SessionInfo
from ..triggers import AgentTriggerFiring, AgentTriggerInfo


class ListAgentTriggersResponse(Response, kw_only=True):
    """Answer to ListAgentTriggers."""

    triggers: list[AgentTriggerInfo]


class GetAgentTriggerResponse(Response, kw_only=True):
    """Answer to GetAgentTrigger; sessions of the newest firing first."""

    trigger: AgentTriggerInfo
    sessions: list[SessionInfo]
    firings: list[AgentTriggerFiring] | UnsetType = UNSET
    """Newest first, at most 25."""
    webhook_secret: str | UnsetType = UNSET
    """Of a webhook, for those who may edit."""


class CreateAgentTriggerResponse(Response, kw_only=True):
    """Answer to CreateAgentTrigger."""

    trigger: AgentTriggerInfo
    webhook_secret: str | UnsetType = UNSET


class UpdateAgentTriggerResponse(Response, kw_only=True):
    """Answer to UpdateAgentTrigger and CombineAgentTriggers."""

    trigger: AgentTriggerInfo


class DeleteAgentTriggerResponse(Response, kw_only=True):
    """Answer to DeleteAgentTrigger."""

    trigger_id: str
