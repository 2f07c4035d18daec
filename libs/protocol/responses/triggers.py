"""Answers about triggers."""

from ..base import Response
from ..sessions import SessionInfo
from ..triggers import AgentTriggerInfo


class ListAgentTriggersResponse(Response, kw_only=True):
    """Answer to ListAgentTriggers."""

    triggers: list[AgentTriggerInfo]


class GetAgentTriggerResponse(Response, kw_only=True):
    """Answer to GetAgentTrigger; sessions of the newest firing first."""

    trigger: AgentTriggerInfo
    sessions: list[SessionInfo]


class CreateAgentTriggerResponse(Response, kw_only=True):
    """Answer to CreateAgentTrigger."""

    trigger: AgentTriggerInfo


class UpdateAgentTriggerResponse(Response, kw_only=True):
    """Answer to UpdateAgentTrigger and CombineAgentTriggers."""

    trigger: AgentTriggerInfo


class DeleteAgentTriggerResponse(Response, kw_only=True):
    """Answer to DeleteAgentTrigger."""

    trigger_id: str
