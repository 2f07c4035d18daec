"""RunFeedService."""

from __future__ import annotations

import msgspec
from seed.runs.v1 import feed_pb2 as pb

from libs import events
from libs.errors import Forbidden, Invalid
from libs.events import Bus
from libs.rpc import Caller
from libs.store import Row
from services.runs.store.feed import Feed, Position

_LIMIT, _MOST = 100, 1000
_CALLERS = ("triggers-api", "triggers-monitor")


class RunFeedApi:
    """Serves triggers."""

    def __init__(self, feed: Feed, bus: Bus) -> None:
        self._feed, self._bus = feed, bus

    async def ListEndedRuns(self, request: pb.ListEndedRunsRequest, caller: Caller) -> pb.ListEndedRunsResponse:
        """Runs that have ended, in an order that nothing is ever put into."""
        _only_triggers(caller)
        limit = request.limit or _LIMIT
        if limit > _MOST:
            raise Invalid(f"At most {_MOST} runs at once")
        ended = await self._feed.ended(Position.parse(request.after), limit)
        return pb.ListEndedRunsResponse(runs=[_ended(position, row) for position, row in ended])

    async def DeliverSignal(self, request: pb.DeliverSignalRequest, caller: Caller) -> pb.DeliverSignalResponse:
        """Wake a waiting run, once by the delivery."""
        _only_triggers(caller)
        if not request.delivery_id or "\0" in request.delivery_id:
            raise Invalid("A delivery needs an id")
        run_id = "" if "\0" in request.run_id else request.run_id
        woken = await self._feed.deliver(request.delivery_id, request.account, run_id)
        if woken is not None:
            self._bus.publish(events.WORK, b"")
        return pb.DeliverSignalResponse(run_id=woken or "")


def _ended(position: Position, row: Row) -> pb.EndedRun:
    error = msgspec.json.decode(row["error"]) if row["error"] else {}
    return pb.EndedRun(
        run_id=row["id"],
        root_run_id=row["root_run_id"],
        account=row["account"],
        agent_id=row["agent_id"] or "",
        session_id=row["session_id"] or "",
        title=row["title"],
        status=row["status"],
        error=str(error.get("message", "")),
        position=str(position),
    )


def _only_triggers(caller: Caller) -> None:
    if caller.service not in _CALLERS:
        raise Forbidden("This call is internal")
