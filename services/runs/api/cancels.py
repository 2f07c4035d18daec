"""What follows a cancel: turns are closed in sessions, workers stop, who waits hears."""

from __future__ import annotations

import asyncio

from seed.events.v1 import events_pb2
from seed.sessions.v1 import turns_pb2, turns_pb2_grpc

from libs import events, telemetry
from libs.errors import SeedError
from libs.events import Bus
from libs.rpc import Peer
from libs.store import Row
from services.runs.store.rows import outcome_of
from services.runs.store.trees import Canceled

log = telemetry.get_logger("runs-api")


class Cancels:
    """Tells sessions and the bus what a cancel did to the rows."""

    def __init__(self, sessions: Peer, bus: Bus) -> None:
        self._sessions, self._bus = sessions, bus
        self._turns = sessions.stub(turns_pb2_grpc.TurnsServiceStub)

    async def tell(self, done: Canceled) -> None:
        """Close the turns of canceled runs: sessions refuses what comes after, workers stop, waiting callers hear."""
        if done.asked:
            ids = [row["id"] for row in done.asked]
            try:
                await self._sessions.call(
                    self._turns.CancelTurns, turns_pb2.CancelTurnsRequest(run_ids=ids), retry=True
                )
            except SeedError as e:
                # The mark on the runs is durable: the workers that hold them end them all the same.
                log.warning("turns not marked as canceled", runs=ids, error=e.message)
        # What is gone, sessions knows of.
        left = [row for row in done.ended if row["session_id"] is not None and not row["gone"]]
        await asyncio.gather(*(self._finish(row) for row in left))
        self.publish(done)

    async def _finish(self, row: Row) -> None:
        end = turns_pb2.FinishTurnRequest(run_id=row["id"], attempt=0, status="canceled")
        try:
            await self._sessions.call(self._turns.FinishTurn, end, retry=True)
        except SeedError as e:
            # The sweep of sessions asks for the run's status and settles the turn.
            log.warning("turn not settled yet", run=row["id"], error=e.message)

    def publish(self, done: Canceled) -> None:
        """Only the news: for runs whose sessions are gone."""
        ids = [row["id"] for row in (*done.asked, *done.ended)]
        if ids:
            self._bus.publish(events.CANCEL, events_pb2.CancelHint(run_ids=ids).SerializeToString())
        for row in done.ended:
            if row["notify"]:
                settled = events_pb2.TurnSettled(outcome=outcome_of(row))
                self._bus.publish(row["notify"], settled.SerializeToString())
