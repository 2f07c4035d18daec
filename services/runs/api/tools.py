"""ToolsService: people use the verbs of an agent (runtime.md, section 11)."""

from __future__ import annotations

from typing import Any

import msgspec
from seed.runs.v1 import tools_pb2 as pb

from libs.errors import Forbidden, Invalid
from libs.rpc import Caller
from services.runs.api.user_actions import UserActions
from services.runs.verbs.dispatch import NAMES


class ToolsApi:
    """Serves the edge, for an acting account."""

    def __init__(self, actions: UserActions) -> None:
        self._actions = actions

    async def InvokeSessionTool(
        self, request: pb.InvokeSessionToolRequest, caller: Caller
    ) -> pb.InvokeSessionToolResponse:
        """Execute a verb; its failure is an answer."""
        if caller.service != "edge":
            raise Forbidden("This call is internal")
        if request.verb not in NAMES:
            raise Invalid("verb must be read, write, or call")
        given = msgspec.json.decode(request.input) if request.input else None
        event = await self._actions.run(caller, request.session_id, request.verb, given)
        # What stands in the log is the answer, also when the action was given up meanwhile.
        result: dict[str, msgspec.Raw] = msgspec.json.decode(event.payload, type=dict[str, msgspec.Raw])
        answer: dict[str, Any] = {"session_id": event.session_id, "result_event_id": event.id}
        if "error" in result:
            return pb.InvokeSessionToolResponse(**answer, error=msgspec.json.decode(result["error"], type=str))
        return pb.InvokeSessionToolResponse(**answer, output=bytes(result["output"]))
