"""TriggeredService."""

from __future__ import annotations

from seed.sessions.v1 import triggered_pb2 as pb

from libs import telemetry
from libs.errors import Invalid, SeedError
from libs.rpc import Caller
from services.sessions.api.decoding import only
from services.sessions.api.peers import Runs
from services.sessions.store.rows import session_of
from services.sessions.store.triggered import Start, TriggeredStore

log = telemetry.get_logger("sessions")

_MOST = 1_000


class TriggeredApi:
    """Serves triggers."""

    def __init__(self, triggered: TriggeredStore, runs: Runs) -> None:
        self._triggered, self._runs = triggered, runs

    async def StartTriggered(self, request: pb.StartTriggeredRequest, caller: Caller) -> pb.StartTriggeredResponse:
        """Open the session of a firing, once."""
        _triggers(caller)
        turn = await self._triggered.start(
            Start(
                firing_id=request.firing_id,
                trigger_id=request.trigger_id,
                owner=request.owner,
                agent_id=request.agent_id,
                title=request.title.replace("\0", "\ufffd"),
                message=request.message,
                summary=request.summary,
                context=request.context,
            )
        )
        try:
            await self._runs.start(turn)
        except SeedError as e:  # the sweep starts it
            log.warning("turn not started yet", run=turn.run_id, error=e.message)
        return pb.StartTriggeredResponse(session_id=turn.session_id)

    async def ListTriggered(self, request: pb.ListTriggeredRequest, caller: Caller) -> pb.ListTriggeredResponse:
        """Sessions by their ids."""
        _triggers(caller)
        if len(request.session_ids) > _MOST:
            raise Invalid("Too many sessions")
        rows = await self._triggered.by_ids(request.agent_id, request.session_ids)
        return pb.ListTriggeredResponse(sessions=[session_of(row) for row in rows])

    async def ForgetTrigger(self, request: pb.ForgetTriggerRequest, caller: Caller) -> pb.ForgetTriggerResponse:
        """Make sessions forget a trigger."""
        _triggers(caller)
        await self._triggered.forget(request.trigger_id)
        return pb.ForgetTriggerResponse()


def _triggers(caller: Caller) -> None:
    only(caller, "triggers-api", "triggers-monitor")
