"""Wiring of runs, for both roles."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass

from redis.asyncio import Redis
from seed.audit.v1 import audit_pb2
from seed.runs.v1 import admin_pb2, feed_pb2, runs_pb2, tools_pb2

from libs import telemetry
from libs.clock import now_ms
from libs.events import Bus
from libs.rpc import Peer, RpcServer, TokenSigner, TokenVerifier
from libs.store import AcceptedSignatures, Answers, Database, Outbox, Row
from libs.store.audit import Audit
from services.runs.api.admin import RunsAdminApi
from services.runs.api.audit import AuditApi
from services.runs.api.cancels import Cancels
from services.runs.api.feed import RunFeedApi
from services.runs.api.runs import RunsApi
from services.runs.api.tools import ToolsApi
from services.runs.api.user_actions import UserActions
from services.runs.domain.continuation import CONTINUE
from services.runs.domain.delegate import DELEGATE
from services.runs.domain.verbs import VERBS
from services.runs.domain.waiting import Limits
from services.runs.settings import RunsSettings, WorkerSettings
from services.runs.store.admin import Operations
from services.runs.store.family import Family
from services.runs.store.feed import Feed
from services.runs.store.queue import Queue
from services.runs.store.tables import accepted_signatures, audit
from services.runs.store.tables import outbox as outbox_rows
from services.runs.store.trees import Trees
from services.runs.store.workers import Workers
from services.runs.verbs.build import build_verbs
from services.runs.verbs.searching import Searching

log = telemetry.get_logger("runs")

OTHER_VERBS = (DELEGATE, *VERBS, CONTINUE)
"""Verbs that only turns have."""


@dataclass(slots=True)
class Base:
    """What both roles stand on."""

    db: Database
    bus: Bus
    outbox: Outbox
    queue: Queue
    relay: asyncio.Task[None]

    @classmethod
    async def open(cls, settings: RunsSettings, name: str) -> Base:
        """Connect to the stores and start the outbox."""
        accepted = AcceptedSignatures(accepted_signatures)
        db = Database(settings.database_url, size=settings.database_pool, accepted=accepted)
        bus = Bus(settings.nats_url, name)
        await asyncio.gather(db.open(), bus.start())
        outbox = Outbox(db, outbox_rows, bus.publish)
        limits = Limits(
            settings.runs_per_account, settings.background_runs_per_account, settings.hourly_runs_per_account
        )
        queue = Queue(db, outbox, lease_ms=settings.lease_ms, now=now_ms, limits=limits, budget_ms=settings.run_wall_ms)
        return cls(db, bus, outbox, queue, asyncio.create_task(outbox.run(), name="outbox"))

    async def close(self) -> None:
        """Send what is left, then disconnect."""
        self.relay.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.relay
        await self.outbox.close()
        await self.bus.close()
        await self.db.close()


async def serve_api(settings: RunsSettings, stop: asyncio.Event) -> None:
    """Serve RunsService until `stop`: then refuse new calls, end running ones, send events, disconnect."""
    base = await Base.open(settings, "runs-api")
    tokens = TokenSigner("runs-api", settings.internal_key)
    sessions = Peer("sessions", settings.sessions_addr, tokens)
    trees, cancels = Trees(base.db, base.outbox, now_ms), Cancels(sessions, base.bus)
    api = RunsApi(trees, base.queue, sessions, base.bus, cancels)
    memory, triggers = Peer("memory", settings.memory_addr, tokens), Peer("triggers", settings.triggers_addr, tokens)
    searching = Searching(settings.hm_server_url, settings.searxng_url)
    verbs = build_verbs(
        sessions=sessions,
        memory=memory,
        triggers=triggers,
        run=trees.get,
        others=OTHER_VERBS,
        executors=searching.executors,
    )
    actions = UserActions(sessions, base.db, verbs)
    workers = Workers(base.db, lease_ms=settings.lease_ms, now=now_ms)
    noted = Audit(base.db, audit)
    operations = Operations(base.db, base.outbox, trees, workers, noted, now_ms)
    admin = RunsAdminApi(operations, base.queue.dispatch, workers, cancels, base.bus)
    verifier = TokenVerifier("runs", settings.internal_key)
    server = RpcServer(verifier, host=settings.grpc_host, port=settings.grpc_port, answers=Answers(base.db))
    server.add(runs_pb2.DESCRIPTOR.services_by_name["RunsService"], api)
    server.add(admin_pb2.DESCRIPTOR.services_by_name["RunsAdminService"], admin)
    server.add(audit_pb2.DESCRIPTOR.services_by_name["AuditService"], AuditApi(noted))
    feed = RunFeedApi(Feed(base.db, base.outbox, now_ms), base.bus)
    server.add(feed_pb2.DESCRIPTOR.services_by_name["RunFeedService"], feed)
    server.add(tools_pb2.DESCRIPTOR.services_by_name["ToolsService"], ToolsApi(actions))
    await server.start()
    leases = asyncio.create_task(actions.run_leases(), name="leases")
    log.info("serving", port=server.port)
    await stop.wait()
    await server.stop()
    await actions.close()
    leases.cancel()
    await asyncio.wait([leases])
    await searching.close()
    for peer in (sessions, memory, triggers):
        await peer.close()
    await base.close()


async def serve_worker(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """Execute runs until `stop`: then claim no more, end or hand back what runs, disconnect."""
    # The worker's rooms bring provider plumbing that the api role never needs.
    from libs.egress import EgressPolicy, Timeouts
    from services.runs.providers.gateway import ModelGateway
    from services.runs.worker.answers import Answers
    from services.runs.worker.log import SessionLog
    from services.runs.worker.models import ModelResolver
    from services.runs.worker.partials import PartialStore, PartialStream
    from services.runs.worker.titles import Titler
    from services.runs.worker.tools import Limits
    from services.runs.worker.turn import Parts
    from services.runs.worker.worker import Pace, Worker

    base = await Base.open(settings, "runs-worker")
    tokens = TokenSigner("runs-worker", settings.internal_key)
    sessions, secrets = Peer("sessions", settings.sessions_addr, tokens), Peer("secrets", settings.secrets_addr, tokens)
    memory, triggers = Peer("memory", settings.memory_addr, tokens), Peer("triggers", settings.triggers_addr, tokens)
    searching = Searching(settings.hm_server_url, settings.searxng_url)
    redis = Redis.from_url(settings.redis_url, socket_timeout=1.0, socket_connect_timeout=1.0)
    hosts = frozenset(h.strip() for h in settings.allowed_provider_hosts.split(",") if h.strip())
    gateway = ModelGateway(
        policy=EgressPolicy(allow_private=settings.allow_private_providers, allowed_hosts=hosts),
        vendor_urls=settings.vendor_urls(),
        timeouts=Timeouts(connect_s=10.0, read_s=settings.provider_timeout_ms / 1000),
    )
    titler = Titler(gateway, enabled=settings.session_title_generation)
    kept = PartialStore(redis)

    def stream_of(row: Row) -> PartialStream:
        return PartialStream(
            base.bus,
            kept,
            account=row["account"],
            agent_id=row["agent_id"] or "",
            session_id=row["session_id"] or "",
            run_id=row["id"],
            interval_s=settings.partial_interval_ms / 1000,
        )

    family = Family(base.db, base.outbox, now_ms, settings.run_wall_ms)
    parts = Parts(
        queue=base.queue,
        family=family,
        limits=Limits(
            depth=settings.delegation_depth,
            children=settings.delegation_children,
            detached=settings.delegation_detached,
        ),
        models=ModelResolver(secrets),
        gateway=gateway,
        now=now_ms,
        log_of=lambda run_id, attempt: SessionLog(sessions, run_id, attempt),
        stream_of=stream_of,
        backoff_ms=_backoff_ms,
        title=titler.consider,
        verbs=build_verbs(
            sessions=sessions,
            memory=memory,
            triggers=triggers,
            run=Trees(base.db, base.outbox, now_ms).get,
            others=OTHER_VERBS,
            executors=searching.executors,
        ),
    )
    pace = Pace(
        slots=settings.worker_slots,
        poll_min_s=settings.poll_min_ms / 1000,
        poll_max_s=settings.poll_max_ms / 1000,
        lease_s=settings.lease_ms / 1000,
    )
    health = RpcServer(TokenVerifier("runs", settings.internal_key), host=settings.grpc_host, port=settings.grpc_port)
    await health.start()
    workers = Workers(base.db, lease_ms=settings.lease_ms, now=now_ms)
    worker = Worker(parts, base.queue, Answers(family, sessions), base.bus, pace, now_ms, workers)
    log.info("working", worker=worker.id)
    await worker.run(stop)
    await health.stop(0)
    await titler.close()
    await gateway.aclose()
    await searching.close()
    for peer in (sessions, secrets, memory, triggers):
        await peer.close()
    await redis.aclose()
    await base.close()


def _backoff_ms(failures: int) -> int:
    """Pause before a failed run is tried again: 5 s, doubled each time, at most 5 min, plus up to 1 s (limits.md)."""
    return min(5_000 * 2 ** (failures - 1), 300_000) + random.randrange(1_000)
