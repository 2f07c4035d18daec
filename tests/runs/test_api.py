"""RunsService over real gRPC: who may do what, selectors, texts, and what a cancel sets in motion."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from seed.events.v1 import events_pb2
from seed.runs.v1 import runs_pb2 as pb
from seed.runs.v1 import runs_pb2_grpc

from libs import events
from libs.errors import Forbidden, Invalid, NotFound, SeedError
from libs.rpc import Peer, RpcServer, TokenSigner, TokenVerifier
from services.runs.api.cancels import Cancels
from services.runs.api.runs import RunsApi
from services.runs.store.endings import Ending
from services.runs.store.family import Family, Park
from tests.runs.fakes import Conversation
from tests.runs.house import AGENT, INTERNAL_KEY, OWNER, new_id, turn, until
from tests.runs.workshop import INBOX, Workshop, now_ms

NAMES = {"writer": "zWriter", "chatter": "zChatter", "reader": "zReader"}


@dataclass
class Api:
    """RunsService as the edge calls it, and the hints it gave to workers."""

    shop: Workshop
    peers: dict[str, Peer]
    canceled: list[str]
    work: list[bytes]

    async def call(self, method: str, request: Any, account: str = OWNER, *, by: str = "edge") -> Any:
        peer = self.peers[by]
        return await peer.call(getattr(peer.stub(runs_pb2_grpc.RunsServiceStub), method), request, account=account)

    async def refused(self, kind: type[SeedError], method: str, request: Any, account: str = OWNER) -> str:
        with pytest.raises(kind) as refusal:
            await self.call(method, request, account)
        return refusal.value.message

    async def run(self, session: Conversation | None = None, **more: Any) -> str:
        """A queued run that somebody waits for."""
        start = self.shop.sessions.open(session or self.shop.sessions.conversation(), **more)
        await self.call("StartTurn", pb.StartTurnRequest(turn=start, notify=INBOX))
        return start.run_id


@pytest_asyncio.fixture
async def api(shop: Workshop) -> AsyncIterator[Api]:
    shop.sessions.roles |= {account: role for role, account in NAMES.items()}
    sessions = Peer("sessions", shop.sessions.address, TokenSigner("runs-api", INTERNAL_KEY))
    server = RpcServer(TokenVerifier("runs", INTERNAL_KEY), host="127.0.0.1", port=0)
    runs = RunsApi(shop.trees, shop.queue, sessions, shop.bus, Cancels(sessions, shop.bus))
    server.add(pb.DESCRIPTOR.services_by_name["RunsService"], runs)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    peers = {name: Peer("runs", address, TokenSigner(name, INTERNAL_KEY)) for name in ("edge", "sessions", "secrets")}
    canceled: list[str] = []
    work: list[bytes] = []
    await shop.bus.subscribe(events.CANCEL, lambda _, body: canceled.extend(_ids(body)))
    await shop.bus.subscribe(events.WORK, lambda _, body: work.append(body))
    await shop.bus.flush()
    yield Api(shop, peers, canceled, work)
    await asyncio.gather(sessions.close(), *(peer.close() for peer in peers.values()))
    await server.stop(0)


def _ids(body: bytes) -> list[str]:
    return list(events_pb2.CancelHint.FromString(body).run_ids)


async def test_starting_twice_is_starting_once(api: Api) -> None:
    start = api.shop.sessions.open(api.shop.sessions.conversation())
    request = pb.StartTurnRequest(turn=start, notify=INBOX)
    assert [(await api.call("StartTurn", request)).status for _ in range(2)] == ["queued", "queued"]
    assert (await api.call("StartTurn", request, by="sessions")).status == "queued"
    await until(lambda: api.work)
    [run] = (await api.call("ListRuns", pb.ListRunsRequest(agent_id=AGENT))).runs
    assert (run.id, run.version) == (start.run_id, 1)


async def test_a_run_is_for_those_who_may_read_its_agent(api: Api) -> None:
    run_id = await api.run()
    for account, role in api.shop.sessions.roles.items():
        answer = await api.call("GetRun", pb.GetRunRequest(run_id=run_id), account)
        assert (answer.run.id, answer.run.status, answer.access_role) == (run_id, "queued", role)
    for wrong in (new_id(), "", "a\0b"):
        assert await api.refused(NotFound, "GetRun", pb.GetRunRequest(run_id=wrong)) == "Run not found"
    assert await api.refused(NotFound, "GetRun", pb.GetRunRequest(run_id=run_id), "zStranger") == "Run not found"


async def test_runs_of_a_tree_a_session_and_an_agent(api: Api) -> None:
    session = api.shop.sessions.conversation()
    first, second = await api.run(session), await api.run(session, behind=True)
    other = await api.run()
    async with api.shop.db.connection() as connection:
        await connection.execute(
            "UPDATE runs SET parent_run_id = $1, root_run_id = $1, created_at = created_at + 9 WHERE id = $2",
            first,
            other,
        )

    async def listed(**fields: Any) -> list[str]:
        answer = await api.call("ListRuns", pb.ListRunsRequest(**fields), NAMES["reader"])
        assert (answer.access_role, answer.agent_id) == ("reader", AGENT)
        return [run.id for run in answer.runs]

    # Any run of a tree names it; newest first by id when they came within one millisecond.
    assert await listed(root_run_id=first) == await listed(root_run_id=other) == [first, other]
    assert set(await listed(session_id=session.id)) == {first, second}
    assert (await listed(agent_id=AGENT))[0] == other
    assert len(await listed(agent_id=AGENT, limit=2)) == 2
    await api.call("CancelRun", pb.CancelRunRequest(run_id=second))
    assert await listed(agent_id=AGENT, status="canceled", limit=1) == [second]
    assert await listed(agent_id=AGENT, status="a\0b") == await listed(agent_id=AGENT, status="paused") == []
    [run, *_] = (await api.call("ListRuns", pb.ListRunsRequest(root_run_id=first))).runs
    assert run.child_run_count == 1


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({}, Invalid, "ListRuns requires rootRunId, sessionId, or agentId"),
        ({"agent_id": AGENT, "session_id": ""}, Invalid, "ListRuns takes exactly one of rootRunId, sessionId, agentId"),
        ({"root_run_id": "x"}, NotFound, "Run not found"),
        ({"session_id": "x"}, NotFound, "Session not found"),
        ({"session_id": ""}, NotFound, "Session not found"),
        ({"session_id": "a\0b"}, NotFound, "Session not found"),
        ({"agent_id": "x"}, NotFound, "Agent not found"),
        ({"agent_id": ""}, NotFound, "Agent not found"),
    ],
)
async def test_a_listing_says_what_is_wrong(api: Api, fields: Any, kind: type[SeedError], text: str) -> None:
    assert await api.refused(kind, "ListRuns", pb.ListRunsRequest(**fields)) == text


async def test_a_queued_run_is_canceled_at_once_and_its_turn_closed(api: Api) -> None:
    run_id = await api.run()
    answer = await api.call("CancelRun", pb.CancelRunRequest(run_id=run_id), NAMES["writer"])
    assert (answer.run_id, answer.canceled) == (run_id, True)
    [finish] = api.shop.sessions.finishes
    assert (finish.run_id, finish.attempt, finish.status, finish.stopped_text) == (run_id, 0, "canceled", "")
    [outcome] = await until(lambda: api.shop.settled)
    assert (outcome.run_id, outcome.status) == (run_id, "canceled")
    again = await api.call("CancelRun", pb.CancelRunRequest(run_id=run_id))
    assert not again.canceled
    told = await api.call("GetTurnOutcome", pb.GetTurnOutcomeRequest(run_id=run_id))
    assert told.outcome.status == "canceled"


async def test_a_live_run_is_marked_and_its_worker_hears(api: Api) -> None:
    run_id = await api.run()
    await api.shop.queue.claim("w", 1)
    answer = await api.call("CancelRun", pb.CancelRunRequest(run_id=run_id))
    assert answer.canceled and api.shop.sessions.turns[run_id].canceled
    assert await until(lambda: api.canceled) == [run_id]
    row = await api.shop.row(run_id)
    assert (row["status"], row["cancel_requested"]) == ("running", True)
    assert not (await api.call("GetTurnOutcome", pb.GetTurnOutcomeRequest(run_id=run_id))).HasField("outcome")
    assert not api.shop.settled


async def test_a_cancel_counts_while_sessions_is_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = await api.run()
    await api.shop.queue.claim("w", 1)

    async def away(*_: Any) -> Any:
        raise Invalid("whatever goes wrong there")

    monkeypatch.setattr(api.shop.sessions, "CancelTurns", away)
    await api.shop.sessions.stop()
    await api.shop.sessions.start()
    assert (await api.call("CancelRun", pb.CancelRunRequest(run_id=run_id))).canceled
    assert await until(lambda: api.canceled) == [run_id]


async def test_stopping_a_session_is_for_those_who_may_chat(api: Api) -> None:
    session = api.shop.sessions.conversation()
    live = await api.run(session)
    await api.shop.queue.claim("w", 1)
    behind = await api.run(session, behind=True)
    stop = pb.StopSessionRequest(session_id=session.id)
    assert await api.refused(Forbidden, "StopSession", stop, NAMES["reader"]) == "chatter is needed"
    assert await api.refused(NotFound, "StopSession", stop, "zStranger") == "Session not found"
    answer = await api.call("StopSession", stop, NAMES["chatter"])
    assert (answer.session_id, answer.stopped) == (session.id, True)
    assert api.shop.sessions.turns[live].canceled
    assert [finish.run_id for finish in api.shop.sessions.finishes] == [behind]
    assert set(await until(lambda: api.canceled)) == {live, behind}
    idle = pb.StopSessionRequest(session_id=api.shop.sessions.conversation().id)
    assert not (await api.call("StopSession", idle)).stopped
    assert await api.refused(NotFound, "StopSession", pb.StopSessionRequest(session_id="")) == "Session not found"


async def test_canceling_and_signaling_need_a_writer(api: Api) -> None:
    run_id = await api.run()
    signal = pb.SignalRunRequest(run_id=run_id, signal="go")
    cancel = pb.CancelRunRequest(run_id=run_id)
    for method, request in (("CancelRun", cancel), ("SignalRun", signal)):
        for account in (NAMES["chatter"], NAMES["reader"]):
            assert await api.refused(Forbidden, method, request, account) == "writer is needed"
        assert await api.refused(NotFound, method, request, "zStranger") == "Run not found"
    assert (await api.shop.row(run_id))["status"] == "queued"
    answer = await api.call("SignalRun", signal, NAMES["writer"])
    assert (answer.run_id, answer.delivered) == (run_id, False)
    for text, message in (("", "Signal is required"), ("x" * 257, "Signal is too large")):
        request = pb.SignalRunRequest(run_id=run_id, signal=text)
        assert await api.refused(Invalid, "SignalRun", request) == message
        # Who may not know of the run does not learn what is wrong with the request.
        assert await api.refused(NotFound, "SignalRun", request, "zStranger") == "Run not found"


async def test_any_signal_resumes_a_run_that_its_budget_paused(api: Api) -> None:
    run_id = await api.run()
    [row] = await api.shop.queue.claim("w", 1)
    family = Family(api.shop.db, api.shop._outbox(), now_ms)
    await family.park(run_id, row["attempt"], Park(pause="Enough."))
    run = (await api.call("GetRun", pb.GetRunRequest(run_id=run_id))).run
    assert json.loads(run.wait) == {"reason": "budget-pause", "label": "Enough."}
    signal = pb.SignalRunRequest(run_id=run_id, signal="whatever")
    assert [(await api.call("SignalRun", signal)).delivered for _ in range(2)] == [True, False]
    assert (await api.shop.row(run_id))["status"] == "queued"


async def test_the_journal_of_an_agent_run_is_empty(api: Api) -> None:
    run_id = await api.run()
    answer = await api.call("GetRunJournal", pb.GetRunJournalRequest(run_id=run_id, after_seq=3), NAMES["reader"])
    assert (answer.run_id, list(answer.entries)) == (run_id, [])
    wrong = pb.GetRunJournalRequest(run_id=run_id, after_seq=-1)
    assert await api.refused(Invalid, "GetRunJournal", wrong) == "afterSeq must be a non-negative integer"
    assert await api.refused(NotFound, "GetRunJournal", wrong, "zStranger") == "Run not found"


async def test_the_outcome_of_a_turn(api: Api) -> None:
    run_id = await api.run()
    await api.shop.queue.claim("w", 1)
    error = json.dumps({"code": "provider-error", "message": "boom"}).encode()
    await api.shop.queue.complete(run_id, 1, Ending("failed", error=error, error_status=502))
    outcome = (await api.call("GetTurnOutcome", pb.GetTurnOutcomeRequest(run_id=run_id))).outcome
    assert (outcome.status, outcome.error_message, outcome.error_status) == ("failed", "boom", 502)
    assert await api.refused(NotFound, "GetTurnOutcome", pb.GetTurnOutcomeRequest(run_id="x")) == "Run not found"


async def test_what_was_deleted_takes_its_runs_with_it(api: Api) -> None:
    session = api.shop.sessions.conversation()
    run_id = await api.run(session)
    await api.shop.queue.claim("w", 1)
    behind = await api.run(session, behind=True)
    answer = await api.call("DetachRuns", pb.DetachRunsRequest(session_id=session.id), "", by="sessions")
    assert answer.canceled == 2
    assert set(await until(lambda: api.canceled)) == {run_id, behind}
    gone = await until(lambda: len(api.shop.settled) == 2 and api.shop.settled)
    assert {(outcome.status, outcome.gone) for outcome in gone} == {("canceled", "Session")}
    assert not (await api.call("GetRun", pb.GetRunRequest(run_id=run_id))).run.HasField("session_id")
    again = await api.call("DetachRuns", pb.DetachRunsRequest(agent_id=AGENT), "", by="sessions")
    assert again.canceled == 0
    assert await api.refused(NotFound, "GetRun", pb.GetRunRequest(run_id=run_id)) == "Run not found"
    # Sessions is told nothing: it asked.
    assert api.shop.sessions.finishes == []


async def test_internal_calls_are_for_those_they_are_for(api: Api) -> None:
    with pytest.raises(Forbidden):
        await api.call("DetachRuns", pb.DetachRunsRequest(session_id="s"))
    with pytest.raises(Forbidden):
        await api.call("GetTurnOutcome", pb.GetTurnOutcomeRequest(run_id="x"), by="sessions")
    with pytest.raises(Invalid):
        await api.call("DetachRuns", pb.DetachRunsRequest(), by="sessions")
    with pytest.raises(Forbidden):
        await api.call("StartTurn", pb.StartTurnRequest(turn=turn("s")), by="secrets")
