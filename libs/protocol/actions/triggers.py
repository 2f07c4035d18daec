"""Actions on triggers."""

from msgspec import UNSET, UnsetType

from ..base import Action
from ..triggers import AgentTriggerInput, AgentTriggerPatch


class ListAgentTriggers(Action, kw_only=True):
    """The triggers of an agent."""

    agent_id: str


class GetAgentTrigger(Action, kw_only=True):
    """A trigger and the sessions it started."""

    trigger_id: str


class CreateAgentTrigger(Action, kw_only=True):
    """Make a trigger."""

    agent_id: str
    trigger: AgentTriggerInput
    client_request_id: str | UnsetType = UNSET


class UpdateAgentTrigger(Action, kw_only=True):
    """Change a trigger."""

    trigger_id: str
    patch: AgentTriggerPatch
    expected_updated_at: int | UnsetType = UNSET
    """Refused when the trigger changed since."""


class DeleteAgentTrigger(Action, kw_only=True):
    """Delete a trigger."""

    trigger_id: str


class CombineAgentTriggers(Action, kw_only=True):
    """Merge two activity triggers into the first."""

    trigger_id: str
    other_trigger_id: str
    expected_updated_at: int
    other_expected_updated_at: int
    use_other_action: bool | UnsetType = UNSET
