"""Ended runs: they fire run-completed triggers, and the failed ones of triggers are told to their firings."""

from __future__ import annotations

from typing import Any

import msgspec
from seed.runs.v1 import feed_pb2, feed_pb2_grpc

from libs.rpc import Peer
from libs.store import Row
from services.triggers.domain import completed
from services.triggers.domain.completed import Chain, EndedRun
from services.triggers.domain.definition import RUN_COMPLETED
from services.triggers.domain.firing import firing_of
from services.triggers.monitor.carriers import Carriers
from services.triggers.store.cursors import CursorStore
from services.triggers.store.firings import FiringStore

_FEED = "ended-runs"
_PAGE = 200
_SECONDS = 10.0
FAILED = "failed"


class EndedRuns:
    """Follows the feed of ended runs. One monitor at a time does; the others find the place taken."""

    def __init__(self, firings: FiringStore, cursors: CursorStore, carriers: Carriers, runs: Peer) -> None:
        self._firings, self._cursors, self._carriers, self._runs = firings, cursors, carriers, runs
        self._stub: Any = runs.stub(feed_pb2_grpc.RunFeedServiceStub)

    async def look(self) -> int:
        """Deal with all that has ended since; returns how many runs that were."""
        seen = 0
        async with self._cursors.hold(_FEED) as cursor:
            while cursor is not None:
                request = feed_pb2.ListEndedRunsRequest(after=cursor.position, limit=_PAGE)
                page = await self._runs.call(self._stub.ListEndedRuns, request, timeout_s=_SECONDS)
                watching = await self._firings.accounts_with(RUN_COMPLETED, (run.account for run in page.runs))
                for ended in page.runs:
                    await self._deal_with(_run(ended), ended.account in watching)
                    seen += 1
                if page.runs:
                    # What a crash makes us see again, the claims absorb.
                    await cursor.move(page.runs[-1].position)
                if len(page.runs) < _PAGE:
                    break
        return seen

    async def _deal_with(self, run: EndedRun, watched: bool) -> None:
        own = firing_of(run.run_id)
        if own is not None and run.status == FAILED:
            await self._firings.run_failed(own, run.error or "The run failed")
        if not watched:
            return
        rows = await self._firings.of_account(run.account, RUN_COMPLETED)
        candidates = [row["id"] for row in rows if _matches(row, run)]
        if not candidates:
            return
        chain = await self._chain(run)
        for trigger_id in candidates:
            if chain.loops(trigger_id):
                continue
            activation = completed.activation(run)
            admitted = await self._firings.admit(
                trigger_id, lambda row, it=activation: it if _matches(row, run) else None
            )
            if admitted is not None and admitted.firing is not None:
                self._carriers.send(admitted.firing)

    async def _chain(self, run: EndedRun) -> Chain:
        """The firings behind a run. What a run delegates belongs to the tree that a firing began."""
        found: list[str] = []
        firing = firing_of(run.root_run_id)
        while firing is not None and len(found) < completed.HOPS:
            cause = await self._firings.cause(firing)
            if cause is None:
                return Chain(tuple(found), open_end=False)
            trigger_id, run_id = cause
            found.append(trigger_id)
            firing = None if run_id is None else firing_of(run_id)
        return Chain(tuple(found), open_end=firing is not None)


def _matches(row: Row, run: EndedRun) -> bool:
    source = msgspec.json.decode(row["source"])
    return source["type"] == RUN_COMPLETED and completed.matches(source, run)


def _run(ended: feed_pb2.EndedRun) -> EndedRun:
    return EndedRun(
        run_id=ended.run_id,
        root_run_id=ended.root_run_id,
        account=ended.account,
        agent_id=ended.agent_id,
        session_id=ended.session_id,
        title=ended.title,
        status=ended.status,
        error=ended.error,
    )
