"""Runs: read, list, cancel, signal, journal; stopping a session."""

from __future__ import annotations

from msgspec import UNSET
from seed.runs.v1 import runs_pb2 as pb
from seed.runs.v1 import tools_pb2 as verbs_pb

from libs.protocol import responses as out
from services.edge.api import views
from services.edge.api.call import Call, Handler
from services.edge.upstream import Peers

INVOKE_SECONDS = 660.0
"""What a verb may take, and a moment."""


class RunActions:
    """Handlers of the runs area; runs owns the data."""

    def __init__(self, peers: Peers) -> None:
        self._peer, self._runs, self._verbs = peers.runs, peers.runs_stub, peers.verbs_stub

    def handlers(self) -> dict[str, Handler]:
        """The actions served here."""
        return {
            "GetRun": self.get,
            "ListRuns": self.list,
            "CancelRun": self.cancel,
            "SignalRun": self.signal,
            "GetRunJournal": self.journal,
            "StopSession": self.stop_session,
            "InvokeSessionTool": self.invoke,
        }

    async def get(self, call: Call) -> out.GetRunResponse:
        """GetRun."""
        r = await call.read(self._peer, self._runs.GetRun, pb.GetRunRequest(run_id=call.text("runId")))
        return out.GetRunResponse(run=views.run(r.run))

    async def list(self, call: Call) -> out.ListRunsResponse:
        """ListRuns."""
        request = pb.ListRunsRequest(
            root_run_id=call.optional_text("rootRunId"),
            session_id=call.optional_text("sessionId"),
            agent_id=call.optional_text("agentId"),
            status=call.optional_text("status"),
            limit=call.limit(),
        )
        r = await call.read(self._peer, self._runs.ListRuns, request)
        return out.ListRunsResponse(runs=[views.run(run) for run in r.runs])

    async def cancel(self, call: Call) -> out.CancelRunResponse:
        """CancelRun."""
        r = await call.write(self._peer, self._runs.CancelRun, pb.CancelRunRequest(run_id=call.text("runId")))
        return out.CancelRunResponse(run_id=r.run_id, canceled=r.canceled)

    async def signal(self, call: Call) -> out.SignalRunResponse:
        """SignalRun."""
        request = pb.SignalRunRequest(
            run_id=call.text("runId"), signal=call.text("signal"), payload=call.json("payload")
        )
        r = await call.write(self._peer, self._runs.SignalRun, request)
        return out.SignalRunResponse(run_id=r.run_id, delivered=r.delivered)

    async def journal(self, call: Call) -> out.GetRunJournalResponse:
        """GetRunJournal."""
        request = pb.GetRunJournalRequest(run_id=call.text("runId"), after_seq=call.after_seq())
        r = await call.read(self._peer, self._runs.GetRunJournal, request)
        return out.GetRunJournalResponse(run_id=r.run_id, entries=[views.journal_entry(e) for e in r.entries])

    async def stop_session(self, call: Call) -> out.StopSessionResponse:
        """StopSession."""
        request = pb.StopSessionRequest(session_id=call.text("sessionId"))
        r = await call.write(self._peer, self._runs.StopSession, request)
        return out.StopSessionResponse(session_id=r.session_id, stopped=r.stopped)

    async def invoke(self, call: Call) -> out.InvokeSessionToolResponse:
        """InvokeSessionTool."""
        request = verbs_pb.InvokeSessionToolRequest(
            session_id=call.text("sessionId"), verb=call.text("verb"), input=call.json("input")
        )
        r = await call.write(self._peer, self._verbs.InvokeSessionTool, request, timeout_s=INVOKE_SECONDS)
        return out.InvokeSessionToolResponse(
            session_id=r.session_id,
            result_event_id=r.result_event_id,
            output=views.DECODED(r.output) if r.HasField("output") else UNSET,
            error=r.error if r.HasField("error") else UNSET,
        )
