"""RunsService."""

from __future__ import annotations

from seed.runs.v1 import runs_pb2 as pb
from seed.sessions.v1 import access_pb2, access_pb2_grpc

from libs import events
from libs.errors import Forbidden, Invalid, NotFound
from libs.events import Bus
from libs.protocol.text import required_text
from libs.rpc import Caller, Peer
from libs.store import Row
from services.runs.api.cancels import Cancels
from services.runs.domain import selectors
from services.runs.store.queue import Queue
from services.runs.store.rows import outcome_of, run_of
from services.runs.store.tables import TERMINAL
from services.runs.store.trees import Trees

SIGNAL_BYTES = 256


class RunsApi:
    """Serves runs of one database. `sessions` answers who may do what and is told of cancels."""

    def __init__(self, trees: Trees, queue: Queue, sessions: Peer, bus: Bus, cancels: Cancels) -> None:
        self._trees, self._queue, self._sessions, self._bus = trees, queue, sessions, bus
        self._cancels = cancels
        self._access = sessions.stub(access_pb2_grpc.AccessServiceStub)

    async def StartTurn(self, request: pb.StartTurnRequest, caller: Caller) -> pb.StartTurnResponse:
        """Create the queued run of a turn and wake the workers."""
        _only(caller, "edge", "sessions")
        row, new = await self._queue.start(request.turn, request.notify)
        if new:
            self._bus.publish(events.WORK, b"")
        return pb.StartTurnResponse(status=row["status"])

    async def GetTurnOutcome(self, request: pb.GetTurnOutcomeRequest, caller: Caller) -> pb.GetTurnOutcomeResponse:
        """The outcome of a terminal or parked run."""
        _only(caller, "edge")
        row = await self._trees.get(_id(request.run_id))
        if row is None:
            raise NotFound("Run not found")
        settled = row["status"] in (*TERMINAL, "waiting")
        return pb.GetTurnOutcomeResponse(outcome=outcome_of(row) if settled else None)

    async def GetRun(self, request: pb.GetRunRequest, caller: Caller) -> pb.GetRunResponse:
        """One run."""
        row, role = await self._authorized(request.run_id, "reader", caller)
        return pb.GetRunResponse(run=run_of(row), access_role=role)

    async def ListRuns(self, request: pb.ListRunsRequest, caller: Caller) -> pb.ListRunsResponse:
        """Runs of a tree, a session or an agent."""
        by = selectors.choose(
            root_run_id=request.root_run_id if request.HasField("root_run_id") else None,
            session_id=request.session_id if request.HasField("session_id") else None,
            agent_id=request.agent_id if request.HasField("agent_id") else None,
        )
        status = _id(request.status) if request.HasField("status") else None
        limit = request.limit or selectors.LIMIT
        if by.kind == "root_run_id":
            row, role = await self._authorized(by.value, "reader", caller)
            rows = await self._trees.by_root(row["root_run_id"], status, limit)
            agent_id = row["agent_id"]
        else:
            access = await self._resolve(caller, "reader", **{by.kind: _id(by.value)})
            read = self._trees.by_session if by.kind == "session_id" else self._trees.by_agent
            rows = await read(by.value, status, limit)
            role, agent_id = access.role, access.agent_id
        return pb.ListRunsResponse(runs=[run_of(row) for row in rows], access_role=role, agent_id=agent_id)

    async def CancelRun(self, request: pb.CancelRunRequest, caller: Caller) -> pb.CancelRunResponse:
        """Cancel a run and everything below it."""
        await self._authorized(request.run_id, "writer", caller)
        done = await self._trees.cancel_run(request.run_id)
        await self._cancels.tell(done)
        return pb.CancelRunResponse(run_id=request.run_id, canceled=done.any)

    async def StopSession(self, request: pb.StopSessionRequest, caller: Caller) -> pb.StopSessionResponse:
        """Cancel every live run of a session with its tree."""
        await self._resolve(caller, "chatter", session_id=_id(request.session_id))
        done = await self._trees.cancel_session(request.session_id)
        await self._cancels.tell(done)
        return pb.StopSessionResponse(session_id=request.session_id, stopped=done.any)

    async def DetachRuns(self, request: pb.DetachRunsRequest, caller: Caller) -> pb.DetachRunsResponse:
        """End and forget what belonged to a deleted session or agent."""
        _only(caller, "sessions")
        subject = request.WhichOneof("subject") or ""
        if not subject:
            raise Invalid("DetachRuns requires a session or an agent")
        done = await self._trees.detach(subject, getattr(request, subject))
        await self._cancels.tell(done)
        return pb.DetachRunsResponse(canceled=len(done.ended))

    async def SignalRun(self, request: pb.SignalRunRequest, caller: Caller) -> pb.SignalRunResponse:
        """Deliver a signal. Of the waits of agent runs only that of a spent budget takes one, whatever its name."""
        await self._authorized(request.run_id, "writer", caller)
        required_text(request.signal, "Signal", SIGNAL_BYTES)
        resumed = await self._queue.resume(request.run_id)
        if resumed is not None:
            self._bus.publish(events.WORK, b"")
        return pb.SignalRunResponse(run_id=request.run_id, delivered=resumed is not None)

    async def GetRunJournal(self, request: pb.GetRunJournalRequest, caller: Caller) -> pb.GetRunJournalResponse:
        """The journal of a run; agent runs keep none."""
        await self._authorized(request.run_id, "reader", caller)
        if request.HasField("after_seq") and request.after_seq < 0:
            raise Invalid("afterSeq must be a non-negative integer")
        return pb.GetRunJournalResponse(run_id=request.run_id)

    async def _authorized(self, run_id: str, need: str, caller: Caller) -> tuple[Row, str]:
        row = await self._trees.get(_id(run_id))
        if row is None or row["agent_id"] is None:
            raise NotFound("Run not found")
        access = await self._resolve(caller, need, agent_id=row["agent_id"], noun="Run")
        return row, access.role

    async def _resolve(
        self, caller: Caller, need: str, *, agent_id: str = "", session_id: str | None = None, noun: str = ""
    ) -> access_pb2.ResolveAccessResponse:
        request = access_pb2.ResolveAccessRequest(need=need, noun=noun)
        if session_id is not None:
            request.session_id = session_id
        else:
            request.agent_id = agent_id
        return await self._sessions.call(
            self._access.ResolveAccess, request, account=caller.account, signer=caller.signer, retry=True
        )


def _only(caller: Caller, *services: str) -> None:
    if caller.service not in services:
        raise Forbidden("This call is internal")


def _id(value: str) -> str:
    # PostgreSQL text cannot hold NUL, and no id has one.
    return "" if "\0" in value else value
