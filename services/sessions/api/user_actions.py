"""UserActionsService: what people do in a session with verbs."""

from __future__ import annotations

from seed.sessions.v1 import user_actions_pb2 as pb

from libs.rpc import Caller
from services.sessions.api.decoding import only
from services.sessions.domain import access
from services.sessions.domain.ids import named
from services.sessions.domain.user_actions import check_input
from services.sessions.store.access import AccessStore
from services.sessions.store.user_actions import UserActionStore


class UserActionsApi:
    """Serves runs alone; who acts is the calling account."""

    def __init__(self, access: AccessStore, actions: UserActionStore) -> None:
        self._access, self._actions = access, actions

    async def BeginUserAction(self, request: pb.BeginUserActionRequest, caller: Caller) -> pb.BeginUserActionResponse:
        """Append the call and hold the session."""
        only(caller, "runs-api")
        session_id = named(request.session_id, "Session ID", "Session")
        await self._access.session(caller.account, session_id, access.WRITER)
        check_input(request.input)
        action = await self._actions.begin(session_id, request.verb, request.input)
        return pb.BeginUserActionResponse(
            tool_call_id=action.tool_call_id,
            session_id=session_id,
            agent_id=action.session["agent_id"],
            owner=action.session["owner"],
            definition=action.session["definition"],
            lease_ms=self._actions.lease_ms,
        )

    async def RenewUserActions(
        self, request: pb.RenewUserActionsRequest, caller: Caller
    ) -> pb.RenewUserActionsResponse:
        """Keep the session held."""
        only(caller, "runs-api")
        await self._actions.renew(request.tool_call_ids)
        return pb.RenewUserActionsResponse()

    async def FinishUserAction(
        self, request: pb.FinishUserActionRequest, caller: Caller
    ) -> pb.FinishUserActionResponse:
        """Append the result and let go of the session."""
        only(caller, "runs-api")
        event = await self._actions.finish(request.tool_call_id, request.session_id, request.payload)
        return pb.FinishUserActionResponse(event=event)
