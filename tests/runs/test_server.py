"""Both roles as they are wired: a turn from StartTurn to its outcome."""

import asyncio

from seed.runs.v1 import runs_pb2 as pb
from seed.runs.v1 import runs_pb2_grpc

from libs.rpc import Peer, TokenSigner
from libs.settings import load
from libs.stack.ports import free_ports
from services.runs.server import serve_api, serve_worker
from services.runs.settings import RunsSettings, WorkerSettings
from tests.runs.house import INTERNAL_KEY, until
from tests.runs.workshop import INBOX, Workshop


async def test_a_turn_from_the_api_to_the_worker_and_back(shop: Workshop) -> None:
    [port] = free_ports(1)
    environ = {
        "SEED_AGENTS_DATABASE_URL": shop.urls["database"],
        "SEED_AGENTS_NATS_URL": shop.urls["nats"],
        "SEED_AGENTS_REDIS_URL": shop.urls["redis"],
        "SEED_AGENTS_INTERNAL_KEY": INTERNAL_KEY,
        "SEED_AGENTS_SESSIONS_ADDR": shop.sessions.address,
        "SEED_AGENTS_SECRETS_ADDR": shop.secrets.address,
        "SEED_AGENTS_ALLOWED_PROVIDER_HOSTS": "127.0.0.1",
        "SEED_AGENTS_SESSION_TITLE_GENERATION": "false",
    }
    stop = asyncio.Event()
    api = asyncio.create_task(serve_api(load(RunsSettings, {**environ, "SEED_AGENTS_GRPC_PORT": str(port)}), stop))
    worker = asyncio.create_task(serve_worker(load(WorkerSettings, environ), stop))
    edge = Peer("runs", f"127.0.0.1:{port}", TokenSigner("edge", INTERNAL_KEY))
    stub = edge.stub(runs_pb2_grpc.RunsServiceStub)
    session = shop.sessions.conversation()
    start = shop.sessions.open(session)
    answer = await edge.call(stub.StartTurn, pb.StartTurnRequest(turn=start, notify=INBOX), retry=True)
    assert answer.status == "queued"
    [settled] = await until(lambda: shop.settled, within_s=20)
    told = await edge.call(stub.GetTurnOutcome, pb.GetTurnOutcomeRequest(run_id=start.run_id))
    assert told.outcome == settled and settled.status == "succeeded"
    assert session.log[-1]["content"] == shop.streamed(start.run_id) == "Hello from the scripted model."
    await edge.close()
    stop.set()
    await asyncio.wait_for(asyncio.gather(api, worker), 15)
