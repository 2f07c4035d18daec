"""RunsAdminService over real gRPC, and the rows of workers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from seed.audit.v1 import audit_pb2, audit_pb2_grpc
from seed.runs.v1 import admin_pb2 as pb
from seed.runs.v1 import admin_pb2_grpc

from libs.errors import Conflict, Forbidden, Invalid, NotFound, SeedError
from libs.rpc import Peer, RpcServer, TokenSigner, TokenVerifier
from libs.stack.scripted import Say
from libs.store import Outbox
from libs.store.audit import Audit
from services.runs.api.admin import RunsAdminApi
from services.runs.api.audit import AuditApi
from services.runs.api.cancels import Cancels
from services.runs.domain.paging import PAGE, PAGE_MOST, page_size, read_token, token_after
from services.runs.store.admin import Operations
from services.runs.store.endings import Ending
from services.runs.store.tables import audit
from services.runs.store.tables import outbox as outbox_rows
from services.runs.store.workers import FORGOTTEN_LEASES, Workers
from tests.runs.house import INTERNAL_KEY, LEASE_MS, Store, new_id, turn, until
from tests.runs.workshop import INBOX, Workshop, now_ms

METHODS = {
    "ListRuns": pb.RunsAdminServiceListRunsRequest(),
    "ExplainRun": pb.ExplainRunRequest(run_id="r"),
    "RequeueRun": pb.RequeueRunRequest(run_id="r"),
    "CancelRun": pb.RunsAdminServiceCancelRunRequest(run_id="r"),
    "ListWorkers": pb.ListWorkersRequest(),
    "DrainWorker": pb.DrainWorkerRequest(worker_id="w"),
    "GetQueue": pb.GetQueueRequest(),
}


@dataclass
class Ops:
    """RunsAdminService as `seed-agents ops` calls it."""

    shop: Workshop
    peers: dict[str, Peer]

    async def call(self, method: str, request: Any, by: str = "ops") -> Any:
        stub = self.peers[by].stub(admin_pb2_grpc.RunsAdminServiceStub)
        return await self.peers[by].call(getattr(stub, method), request)

    async def refused(self, kind: type[SeedError], method: str, request: Any) -> str:
        with pytest.raises(kind) as refusal:
            await self.call(method, request)
        return refusal.value.message

    async def start(self, account: str, **more: Any) -> str:
        """A queued run of an account, in a session of its own; each a millisecond younger than the one before."""
        before = now_ms()
        await until(lambda: now_ms() > before)
        row, _ = await self.shop.queue.start(turn(new_id(), owner=account, **more), "")
        return row["id"]

    async def ids(self, **filter_by: Any) -> list[list[str]]:
        """The pages of a listing, as run ids."""
        pages, token = [], ""
        while True:
            request = pb.RunsAdminServiceListRunsRequest(page_token=token, **filter_by)
            page = await self.call("ListRuns", request)
            pages.append([item.run.id for item in page.runs])
            token = page.next_page_token
            if not token:
                return pages


@pytest_asyncio.fixture
async def ops(shop: Workshop) -> AsyncIterator[Ops]:
    sessions = Peer("sessions", shop.sessions.address, TokenSigner("runs-api", INTERNAL_KEY))
    server = RpcServer(TokenVerifier("runs", INTERNAL_KEY), host="127.0.0.1", port=0)
    workers, noted = Workers(shop.db, lease_ms=LEASE_MS, now=now_ms), Audit(shop.db, audit)
    outbox = Outbox(shop.db, outbox_rows, shop.bus.publish)
    operations = Operations(shop.db, outbox, shop.trees, workers, noted, now_ms)
    cancels = Cancels(sessions, shop.bus)
    admin = RunsAdminApi(operations, shop.queue.dispatch, workers, cancels, shop.bus)
    server.add(audit_pb2.DESCRIPTOR.services_by_name["AuditService"], AuditApi(noted))
    server.add(pb.DESCRIPTOR.services_by_name["RunsAdminService"], admin)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    peers = {name: Peer("runs", address, TokenSigner(name, INTERNAL_KEY)) for name in ("ops", "edge", "sessions")}
    yield Ops(shop, peers)
    await asyncio.gather(sessions.close(), *(peer.close() for peer in peers.values()))
    await server.stop(0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("by", ["edge", "sessions"])
async def test_operators_only(ops: Ops, method: str, by: str) -> None:
    with pytest.raises(Forbidden, match="for operators"):
        await ops.call(method, METHODS[method], by)


def test_every_method_is_in_the_test_above() -> None:
    assert {m.name for m in pb.DESCRIPTOR.services_by_name["RunsAdminService"].methods} == METHODS.keys()


async def test_what_operators_do_is_on_record_with_its_effect(ops: Ops) -> None:
    account = f"zAudited-{new_id()}"
    run_id, other = await ops.start(account), await ops.start(account)
    await ops.shop.worker()
    async with asyncio.timeout(8):
        while True:
            if workers := (await ops.call("ListWorkers", pb.ListWorkersRequest())).workers:
                break
            await asyncio.sleep(0.01)
    worker = workers[0]
    await ops.call("DrainWorker", pb.DrainWorkerRequest(worker_id=worker.id))
    await ops.call("DrainWorker", pb.DrainWorkerRequest(worker_id=worker.id, resume=True))
    await ops.shop.trees.cancel_run(other)
    await ops.call("CancelRun", pb.RunsAdminServiceCancelRunRequest(run_id=run_id))
    await ops.refused(Conflict, "RequeueRun", pb.RequeueRunRequest(run_id=run_id))
    await ops.refused(NotFound, "DrainWorker", pb.DrainWorkerRequest(worker_id="nobody"))

    stub = ops.peers["ops"].stub(audit_pb2_grpc.AuditServiceStub)
    about = await ops.peers["ops"].call(stub.ListAudit, audit_pb2.ListAuditRequest(account=account))
    assert [(e.action, e.subject) for e in about.entries] == [("run.cancel", run_id)]
    assert (about.entries[0].via, about.entries[0].actor) == ("ops", "")
    newest = (await ops.peers["ops"].call(stub.ListAudit, audit_pb2.ListAuditRequest())).entries
    drained = [(e.action, e.account) for e in newest if e.subject == worker.id]
    assert drained == [("worker.resume", ""), ("worker.drain", "")]
    with pytest.raises(Forbidden, match="for operators"):
        edge = ops.peers["edge"]
        await edge.call(edge.stub(audit_pb2_grpc.AuditServiceStub).ListAudit, audit_pb2.ListAuditRequest())
    async with ops.shop.db.connection() as connection:
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await connection.execute("DELETE FROM audit")


async def test_runs_of_all_accounts_in_pages_newest_first(ops: Ops) -> None:
    made = [await ops.start(f"z{'AB'[n % 2]}") for n in range(7)]
    newest = made[::-1]
    assert await ops.ids() == [newest]
    assert await ops.ids(page_size=3) == [newest[:3], newest[3:6], newest[6:]]
    assert await ops.ids(account="zA", page_size=2) == [newest[:3:2], newest[4::2]]
    assert await ops.ids(account="zNobody") == [[]]


async def test_a_page_goes_on_where_it_ended_whatever_comes_meanwhile(ops: Ops) -> None:
    made = [await ops.start("zA") for _ in range(4)]
    first = await ops.call("ListRuns", pb.RunsAdminServiceListRunsRequest(page_size=2))
    await ops.start("zA")
    await ops.shop.trees.cancel_run(made[1])
    request = pb.RunsAdminServiceListRunsRequest(page_size=2, page_token=first.next_page_token)
    second = await ops.call("ListRuns", request)
    assert [item.run.id for item in second.runs] == made[1::-1]
    assert second.next_page_token == ""


async def test_runs_by_status(ops: Ops) -> None:
    queued, canceled, running = [await ops.start("zA") for _ in range(3)]
    await ops.shop.trees.cancel_run(canceled)
    async with ops.shop.db.connection() as connection:
        await connection.execute("UPDATE runs SET status = 'running', worker = 'w1' WHERE id = $1", running)
    assert await ops.ids(statuses=["queued"]) == [[queued]]
    assert await ops.ids(statuses=["queued", "running"], account="zA") == [[running, queued]]
    assert await ops.ids(statuses=["canceled", "queued"]) == [[canceled, queued]]
    listed = await ops.call("ListRuns", pb.RunsAdminServiceListRunsRequest(statuses=["running"]))
    assert (listed.runs[0].worker, listed.runs[0].HasField("waiting")) == ("w1", False)
    message = await ops.refused(Invalid, "ListRuns", pb.RunsAdminServiceListRunsRequest(statuses=["gone"]))
    assert message == "Unknown status: 'gone'"


async def test_a_token_is_good_for_its_own_filter_only(ops: Ops) -> None:
    for _ in range(2):
        await ops.start("zA")
    first = await ops.call("ListRuns", pb.RunsAdminServiceListRunsRequest(page_size=1))
    for request, message in [
        ({"page_token": first.next_page_token, "account": "zA"}, "Page token belongs to another filter"),
        ({"page_token": "@@"}, "Page token is not valid"),
        ({"page_token": "e30="}, "Page token is not valid"),
        ({"page_size": -1}, "Page size must not be negative"),
        ({"account": "z\0"}, "Id contains an invalid character"),
    ]:
        assert await ops.refused(Invalid, "ListRuns", pb.RunsAdminServiceListRunsRequest(**request)) == message


def test_sizes_and_tokens() -> None:
    assert [page_size(n) for n in (0, 1, PAGE_MOST + 1)] == [PAGE, 1, PAGE_MOST]
    assert read_token(token_after(5, "r", ["a", "b"]), ["a", "b"]) == (5, "r")
    assert read_token("", ["a"]) is None
    for wrong in (token_after(-1, "r", []), token_after(1, "r\0", [])):
        with pytest.raises(Invalid):
            read_token(wrong, [])


async def test_a_run_explains_why_it_waits(ops: Ops) -> None:
    first, second = [await ops.start("zA") for _ in range(2)]
    answer = await ops.call("ExplainRun", pb.ExplainRunRequest(run_id=first))
    assert (answer.run.waiting.reason, answer.place) == ("no-worker", 0)
    workers = Workers(ops.shop.db, lease_ms=LEASE_MS, now=now_ms)
    await workers.beat("w", host="h", started_at=1, slots=4, held=0, draining=False, stopping=False)
    answer = await ops.call("ExplainRun", pb.ExplainRunRequest(run_id=second))
    assert (answer.run.waiting.reason, answer.place, answer.run.run.id) == ("queued", 2, second)
    [[_, listed]] = [(await ops.call("ListRuns", pb.RunsAdminServiceListRunsRequest())).runs]
    assert listed.waiting.reason == "queued"
    assert await ops.refused(NotFound, "ExplainRun", pb.ExplainRunRequest(run_id=new_id())) == "Run not found"


async def test_queueing_again_ends_a_pause(ops: Ops) -> None:
    run_id = await ops.start("zA")
    [row] = await ops.shop.queue.claim("w", 1)
    later = now_ms() + 100_000
    await ops.shop.queue.give_back(run_id, row["attempt"], not_before=later, failures=1)
    assert await ops.shop.queue.claim("w", 1) == []
    answer = await ops.call("RequeueRun", pb.RequeueRunRequest(run_id=run_id))
    assert (answer.run.run.status, answer.run.failures) == ("queued", 1)
    assert [row["id"] for row in await ops.shop.queue.claim("w", 1)] == [run_id]


async def test_queueing_again_takes_a_run_from_its_worker_and_another_finishes_it(ops: Ops) -> None:
    shop = ops.shop
    gate = asyncio.Event()
    shop.provider.script.append(Say(("never",), gate=gate))
    running = await shop.worker(lease_ms=1_500)
    start = await shop.say()
    await until(lambda: shop.provider.requests, within_s=30)
    answer = await ops.call("RequeueRun", pb.RequeueRunRequest(run_id=start.run_id))
    assert answer.run.run.status == "queued" and answer.run.worker == ""
    row = await shop.ended(start.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    gate.set()
    await running.stop()


async def test_what_cannot_be_queued_again(ops: Ops) -> None:
    ended, parked = [await ops.start("zA") for _ in range(2)]
    await ops.shop.trees.cancel_run(ended)
    async with ops.shop.db.connection() as connection:
        await connection.execute("UPDATE runs SET status = 'waiting' WHERE id = $1", parked)
    again = [await ops.refused(Conflict, "RequeueRun", pb.RequeueRunRequest(run_id=run)) for run in (ended, parked)]
    assert again == ["Run has ended: canceled", "Run waits for the runs that it delegated"]
    await ops.refused(NotFound, "RequeueRun", pb.RequeueRunRequest(run_id=new_id()))


async def test_cancel_asks_nobody_and_closes_the_turn(ops: Ops) -> None:
    shop = ops.shop
    start = shop.sessions.open(shop.sessions.conversation())
    await shop.queue.start(start, INBOX)
    answer = await ops.call("CancelRun", pb.RunsAdminServiceCancelRunRequest(run_id=start.run_id))
    assert (answer.ended, answer.asked) == (1, 0)
    [settled] = await until(lambda: shop.settled)
    assert (settled.run_id, settled.status) == (start.run_id, "canceled")
    outcome = shop.sessions.turns[start.run_id].outcome
    assert outcome is not None and outcome.status == "canceled"
    answer = await ops.call("CancelRun", pb.RunsAdminServiceCancelRunRequest(run_id=start.run_id))
    assert (answer.ended, answer.asked) == (0, 0)
    await ops.refused(NotFound, "CancelRun", pb.RunsAdminServiceCancelRunRequest(run_id=new_id()))


async def test_the_queue_in_numbers(ops: Ops) -> None:
    await ops.start("zA")
    [row] = await ops.shop.queue.claim("w", 1)
    oldest = await ops.start("zA", behind=True)
    for account in ("zB", "zB", "zC"):
        await ops.start(account)
    await ops.start("zA", behind=True)
    ended = await ops.start("zC")
    await ops.shop.trees.cancel_run(ended)
    created = (await ops.shop.row(oldest))["created_at"]
    answer = await ops.call("GetQueue", pb.GetQueueRequest(accounts=2))
    totals = {(d.background, d.status): (d.runs, d.account) for d in answer.totals}
    assert totals == {(False, "queued"): (3, ""), (False, "running"): (1, ""), (True, "queued"): (2, "")}
    depths = [(d.account, d.background, d.status, d.runs) for d in answer.accounts]
    assert depths == [("zA", False, "running", 1), ("zA", True, "queued", 2), ("zB", False, "queued", 2)]
    assert answer.accounts[1].oldest_created_at == created
    await ops.shop.queue.complete(row["id"], 1, Ending("succeeded"))


async def test_a_worker_is_on_record_drains_and_signs_off(ops: Ops) -> None:
    shop = ops.shop
    gate = asyncio.Event()
    shop.provider.script.append(Say(("Hello",), gate=gate))
    running = await shop.worker(lease_ms=1_500, slots=3)
    first = await shop.say()
    await until(lambda: shop.provider.requests, within_s=30)

    async def seen(wanted: Any) -> pb.Worker:
        async with asyncio.timeout(10):
            while True:
                [worker] = (await ops.call("ListWorkers", pb.ListWorkersRequest())).workers
                if wanted(worker):
                    return worker
                await asyncio.sleep(0.02)

    worker = await seen(lambda w: w.held == 1)
    assert (worker.id, worker.slots, worker.draining, worker.alive) == (running.worker.id, 3, False, True)
    assert 0 < worker.started_at <= worker.seen_at <= now_ms()

    answer = await ops.call("DrainWorker", pb.DrainWorkerRequest(worker_id=worker.id))
    assert answer.worker.draining
    await until(lambda: running.worker._presence.draining)
    second = await shop.say()
    gate.set()
    assert (await shop.ended(first.run_id))["status"] == "succeeded"
    await seen(lambda w: w.held == 0)
    assert (await shop.row(second.run_id))["status"] == "queued"
    answer = await ops.call("ExplainRun", pb.ExplainRunRequest(run_id=second.run_id))
    assert answer.run.waiting.reason == "no-worker"

    await ops.call("DrainWorker", pb.DrainWorkerRequest(worker_id=worker.id, resume=True))
    assert (await shop.ended(second.run_id))["status"] == "succeeded"
    await running.stop()
    assert not (await ops.call("ListWorkers", pb.ListWorkersRequest())).workers
    await ops.refused(NotFound, "DrainWorker", pb.DrainWorkerRequest(worker_id=worker.id))


async def test_workers_in_pages(ops: Ops) -> None:
    workers = Workers(ops.shop.db, lease_ms=LEASE_MS, now=now_ms)
    for name in "abc":
        await workers.beat(name, host="h", started_at=1, slots=1, held=0, draining=False, stopping=False)
    first = await ops.call("ListWorkers", pb.ListWorkersRequest(page_size=2))
    rest = await ops.call("ListWorkers", pb.ListWorkersRequest(page_size=2, page_token=first.next_page_token))
    assert [[w.id for w in page.workers] for page in (first, rest)] == [["a", "b"], ["c"]]
    assert rest.next_page_token == ""


async def test_rows_of_the_dead_are_dropped_and_a_drain_outlives_that(store: Store) -> None:
    workers = Workers(store.db, lease_ms=LEASE_MS, now=store.clock)
    beat = {"host": "h", "started_at": 1, "slots": 1, "held": 0, "draining": False, "stopping": False}
    assert not await workers.beat("w1", **beat)
    async with store.db.transaction() as tx:
        await workers.drain(tx, "w1", draining=True)
    assert await workers.beat("w1", **beat)
    store.clock.ms += LEASE_MS
    [row] = await workers.page("", 9)
    assert not workers.alive(row) and await workers.forget() == 0
    store.clock.ms += FORGOTTEN_LEASES * LEASE_MS
    await workers.beat("w2", **beat)
    assert await workers.forget() == 1
    assert [row["id"] for row in await workers.page("", 9)] == ["w2"]
    assert await workers.beat("w1", **{**beat, "draining": True})
    # One that ends stays in the list until it has ended, and takes nothing back meanwhile.
    assert await workers.beat("w2", **{**beat, "stopping": True})
    assert await workers.beat("w2", **beat)
