"""Triggers."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from seed.triggers.v1 import triggers_pb2 as pb

from libs.errors import TooOld
from libs.protocol import responses as out
from libs.protocol.versions import COMPOUND_TRIGGER_PROTOCOL
from libs.wire import MAX_SAFE_INTEGER
from services.edge.api import views
from services.edge.api.call import Call, Handler
from services.edge.domain.shims import TRIGGER_TOO_OLD, check_source, sessions_for, trigger_for, triggers_for
from services.edge.upstream import Peers

_NO_TIME = -1
"""Stands for an expected updatedAt that is none: no trigger has it."""


class TriggerActions:
    """Handlers of triggers; triggers owns the data."""

    def __init__(self, peers: Peers) -> None:
        self._peer, self._triggers = peers.triggers, peers.triggers_stub

    def handlers(self) -> dict[str, Handler]:
        """The actions served here."""
        return {
            "ListAgentTriggers": self.list,
            "GetAgentTrigger": self.get,
            "CreateAgentTrigger": self.create,
            "UpdateAgentTrigger": self.update,
            "DeleteAgentTrigger": self.delete,
            "CombineAgentTriggers": self.combine,
        }

    async def list(self, call: Call) -> out.ListAgentTriggersResponse:
        """ListAgentTriggers."""
        request = pb.ListTriggersRequest(agent_id=call.text("agentId"))
        r = await call.read(self._peer, self._triggers.ListTriggers, request)
        return out.ListAgentTriggersResponse(triggers=triggers_for(call.protocol, map(views.trigger, r.triggers)))

    async def get(self, call: Call) -> out.GetAgentTriggerResponse:
        """GetAgentTrigger."""
        request = pb.GetTriggerRequest(trigger_id=call.text("triggerId"))
        r = await call.read(self._peer, self._triggers.GetTrigger, request)
        return out.GetAgentTriggerResponse(
            trigger=trigger_for(call.protocol, views.trigger(r.trigger)),
            sessions=sessions_for(call.protocol, [views.session(s) for s in r.sessions]),
            firings=[views.firing(f) for f in r.firings],
            webhook_secret=r.webhook_secret or UNSET,
        )

    async def create(self, call: Call) -> out.CreateAgentTriggerResponse:
        """CreateAgentTrigger."""
        check_source(call.protocol, call.action.get("trigger"))
        request = pb.CreateTriggerRequest(
            agent_id=call.text("agentId"),
            trigger=call.cbor("trigger"),
            client_request_id=call.optional_text("clientRequestId"),
        )
        r = await call.write(self._peer, self._triggers.CreateTrigger, request)
        return out.CreateAgentTriggerResponse(
            trigger=trigger_for(call.protocol, views.trigger(r.trigger)), webhook_secret=r.webhook_secret or UNSET
        )

    async def update(self, call: Call) -> out.UpdateAgentTriggerResponse:
        """UpdateAgentTrigger."""
        check_source(call.protocol, call.action.get("patch"))
        request = pb.UpdateTriggerRequest(
            trigger_id=call.text("triggerId"),
            patch=call.cbor("patch"),
            expected_updated_at=_time(call.action["expectedUpdatedAt"]) if "expectedUpdatedAt" in call.action else None,
            old_client=call.protocol < COMPOUND_TRIGGER_PROTOCOL,
        )
        r = await call.write(self._peer, self._triggers.UpdateTrigger, request)
        return out.UpdateAgentTriggerResponse(trigger=trigger_for(call.protocol, views.trigger(r.trigger)))

    async def delete(self, call: Call) -> out.DeleteAgentTriggerResponse:
        """DeleteAgentTrigger."""
        request = pb.DeleteTriggerRequest(trigger_id=call.text("triggerId"))
        r = await call.write(self._peer, self._triggers.DeleteTrigger, request)
        return out.DeleteAgentTriggerResponse(trigger_id=r.trigger_id)

    async def combine(self, call: Call) -> out.UpdateAgentTriggerResponse:
        """CombineAgentTriggers: what comes of it is always a source that old clients do not know."""
        if call.protocol < COMPOUND_TRIGGER_PROTOCOL:
            raise TooOld(TRIGGER_TOO_OLD)
        request = pb.CombineTriggersRequest(
            trigger_id=call.text("triggerId"),
            other_trigger_id=call.text("otherTriggerId"),
            expected_updated_at=_time(call.action.get("expectedUpdatedAt")),
            other_expected_updated_at=_time(call.action.get("otherExpectedUpdatedAt")),
            use_other_action=call.action.get("useOtherAction") is True,
        )
        r = await call.write(self._peer, self._triggers.CombineTriggers, request)
        return out.UpdateAgentTriggerResponse(trigger=views.trigger(r.trigger))


def _time(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SAFE_INTEGER
    return value if whole else _NO_TIME
