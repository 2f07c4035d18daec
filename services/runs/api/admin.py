"""RunsAdminService: for operators only."""

from __future__ import annotations

from collections.abc import Mapping

from seed.runs.v1 import admin_pb2 as pb

from libs import events, telemetry
from libs.errors import Invalid
from libs.events import Bus
from libs.rpc import Caller
from libs.store import Row
from services.runs.api.callers import operator
from services.runs.api.cancels import Cancels
from services.runs.domain.paging import page_size, read_token, token_after
from services.runs.domain.waiting import Reason
from services.runs.store.admin import STATUSES, Operations
from services.runs.store.dispatch import Dispatch
from services.runs.store.rows import run_of
from services.runs.store.workers import Workers

log = telemetry.get_logger("runs-api")


class RunsAdminApi:
    """Serves operators of one database. Nothing here asks sessions who may do what."""

    def __init__(
        self, operations: Operations, dispatch: Dispatch, workers: Workers, cancels: Cancels, bus: Bus
    ) -> None:
        self._operations, self._dispatch, self._workers = operations, dispatch, workers
        self._cancels, self._bus = cancels, bus

    async def ListRuns(
        self, request: pb.RunsAdminServiceListRunsRequest, caller: Caller
    ) -> pb.RunsAdminServiceListRunsResponse:
        """A page of runs, newest first."""
        operator(caller)
        size = page_size(request.page_size)
        statuses = sorted(set(request.statuses))
        if unknown := [status for status in statuses if status not in STATUSES]:
            raise Invalid(f"Unknown status: {unknown[0]!r}")
        filter_by = [_id(request.account), *statuses]
        before = read_token(request.page_token, filter_by)
        rows = await self._operations.page(statuses, filter_by[0], before, size + 1)
        shown = rows[:size]
        reasons = await self._dispatch.reasons([row["id"] for row in shown if row["status"] == "queued"])
        return pb.RunsAdminServiceListRunsResponse(
            runs=[_run(row, reasons) for row in shown],
            next_page_token=token_after(shown[-1]["created_at"], shown[-1]["id"], filter_by)
            if len(rows) > size
            else "",
        )

    async def ExplainRun(self, request: pb.ExplainRunRequest, caller: Caller) -> pb.ExplainRunResponse:
        """One run, and why it waits."""
        operator(caller)
        row = await self._operations.get(_id(request.run_id))
        reason, place = await self._dispatch.explain(row["id"])
        return pb.ExplainRunResponse(run=_run(row, {row["id"]: reason} if reason else {}), place=place)

    async def RequeueRun(self, request: pb.RequeueRunRequest, caller: Caller) -> pb.RequeueRunResponse:
        """Let a run be claimed now."""
        row = await self._operations.requeue(_id(request.run_id), operator(caller))
        log.info("queued again by an operator", run=row["id"])
        self._bus.publish(events.WORK, b"")
        return pb.RequeueRunResponse(run=_run(row, await self._dispatch.reasons([row["id"]])))

    async def CancelRun(
        self, request: pb.RunsAdminServiceCancelRunRequest, caller: Caller
    ) -> pb.RunsAdminServiceCancelRunResponse:
        """Cancel a run and everything below it."""
        by = operator(caller)
        done = await self._operations.cancel(_id(request.run_id), by)
        log.info("canceled by an operator", run=request.run_id, ended=len(done.ended), asked=len(done.asked))
        await self._cancels.tell(done)
        return pb.RunsAdminServiceCancelRunResponse(ended=len(done.ended), asked=len(done.asked))

    async def ListWorkers(self, request: pb.ListWorkersRequest, caller: Caller) -> pb.ListWorkersResponse:
        """A page of workers, by id."""
        operator(caller)
        size = page_size(request.page_size)
        after = read_token(request.page_token, ["workers"])
        rows = await self._workers.page(after[1] if after else "", size + 1)
        shown = rows[:size]
        return pb.ListWorkersResponse(
            workers=[self._worker(row) for row in shown],
            next_page_token=token_after(0, shown[-1]["id"], ["workers"]) if len(rows) > size else "",
        )

    async def DrainWorker(self, request: pb.DrainWorkerRequest, caller: Caller) -> pb.DrainWorkerResponse:
        """Ask a worker to claim no more, or to claim again."""
        row = await self._operations.drain(_id(request.worker_id), operator(caller), draining=not request.resume)
        log.info("drained by an operator", worker=row["id"], resume=request.resume)
        return pb.DrainWorkerResponse(worker=self._worker(row))

    async def GetQueue(self, request: pb.GetQueueRequest, caller: Caller) -> pb.GetQueueResponse:
        """What is queued, executed and parked."""
        operator(caller)
        totals, accounts = await self._operations.depths(page_size(request.accounts))
        return pb.GetQueueResponse(
            totals=[_depth(row) for row in totals], accounts=[_depth(row, row["account"]) for row in accounts]
        )

    def _worker(self, row: Row) -> pb.Worker:
        return pb.Worker(**dict(row), alive=self._workers.alive(row))


def _id(value: str) -> str:
    if "\0" in value:
        raise Invalid("Id contains an invalid character")
    return value


def _run(row: Row, reasons: Mapping[str, Reason]) -> pb.OperatorRun:
    run = pb.OperatorRun(
        run=run_of(row),
        worker=row["worker"] or "" if row["status"] == "running" else "",
        attempt=row["attempt"],
        failures=row["failures"],
        background=row["queue"] == 1,
        cancel_requested=row["cancel_requested"],
    )
    reason = reasons.get(row["id"])
    if reason is not None:
        run.waiting.CopyFrom(pb.Waiting(reason=reason.name, until=reason.until, behind_run_id=reason.behind))
    return run


def _depth(row: Row, account: str = "") -> pb.Depth:
    return pb.Depth(
        account=account,
        background=row["queue"] == 1,
        status=row["status"],
        runs=row["runs"],
        oldest_created_at=row["oldest_created_at"],
    )
