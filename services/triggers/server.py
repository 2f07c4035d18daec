"""Wiring of triggers, for all roles."""

from __future__ import annotations

import asyncio
import uuid

from seed.triggers.v1 import triggers_pb2

from libs import telemetry
from libs.clock import now_ms
from libs.egress import Timeouts
from libs.events import Bus
from libs.hypermedia.feed import ActivityFeed
from libs.hypermedia.server import HypermediaServer
from libs.rpc import Peer, RpcServer, TokenSigner, TokenVerifier
from libs.store import AcceptedSignatures, Answers, Database, Outbox
from services.triggers.api.access import AgentAccess
from services.triggers.api.activity import ActivityApi
from services.triggers.api.triggers import TriggersApi
from services.triggers.domain.definition import Rules
from services.triggers.domain.rate import Rate
from services.triggers.domain.webhooks import WebhookSecrets
from services.triggers.monitor.activity import ActivityMonitor, Pace
from services.triggers.monitor.carriers import Carriers
from services.triggers.monitor.clock import Clock
from services.triggers.monitor.completed import EndedRuns
from services.triggers.monitor.dispatch import Dispatch
from services.triggers.monitor.leftovers import Leftovers
from services.triggers.monitor.loops import every
from services.triggers.settings import TriggersSettings
from services.triggers.store.activity import ActivityStore
from services.triggers.store.combining import CombineStore
from services.triggers.store.cursors import CursorStore
from services.triggers.store.feeds import FeedStore
from services.triggers.store.firings import FiringStore
from services.triggers.store.tables import accepted_signatures
from services.triggers.store.tables import outbox as outbox_rows
from services.triggers.store.triggers import TriggerStore

log = telemetry.get_logger("triggers")

ROLES = ("api", "monitor", "all")
_SWEEP_S = 1.0
_READING = Timeouts(connect_s=3.0, read_s=5.0, total_s=5.0)


def _new_id() -> str:
    return str(uuid.uuid4())


async def serve(role: str, settings: TriggersSettings, stop: asyncio.Event) -> None:
    """Serve `role` until `stop` is set: api answers calls, monitor fires, all does both."""
    identity = "triggers-monitor" if role == "monitor" else "triggers-api"
    tokens = TokenSigner(identity, settings.internal_key)
    accepted = AcceptedSignatures(accepted_signatures)
    db = Database(settings.database_url, size=settings.database_pool, accepted=accepted)
    bus = Bus(settings.nats_url, identity)
    outbox = Outbox(db, outbox_rows, bus.publish)
    sessions, runs = Peer("sessions", settings.sessions_addr, tokens), Peer("runs", settings.runs_addr, tokens)
    firings = FiringStore(db, outbox, now=now_ms, sweep_ms=settings.firing_sweep_ms)
    hypermedia = HypermediaServer(settings.hm_server_url, _READING)
    dispatch = Dispatch(firings, sessions, runs, hypermedia.ask)
    carriers = Carriers(dispatch.carry_out)
    feed = ActivityFeed(settings.hm_server_url)
    server = RpcServer(
        TokenVerifier("triggers", settings.internal_key),
        host=settings.grpc_host,
        port=settings.grpc_port,
        answers=Answers(db),
    )
    if role != "monitor":
        access, rules = AgentAccess(sessions), Rules(_new_id, webhooks=settings.webhooks)
        triggers = TriggerStore(db, outbox, now=now_ms)
        api = TriggersApi(
            access,
            rules,
            triggers,
            firings,
            WebhookSecrets(settings.webhook_key, settings.internal_key),
            Rate(settings.webhook_deliveries, now_ms),
            carriers.send,
            dispatch.forget,
            webhooks=settings.webhooks,
        )
        combining = CombineStore(outbox, _new_id, now=now_ms)
        # Each serves the calls that it has.
        for servicer in (api, ActivityApi(access, rules, triggers, combining, feed)):
            server.add(triggers_pb2.DESCRIPTOR.services_by_name["TriggersService"], servicer)
    watches = []
    if role != "api":
        clock, ended = Clock(firings, carriers), EndedRuns(firings, CursorStore(db), carriers, runs)
        watches = [
            every(settings.activity_poll_interval_ms / 1000, "schedules", clock.look),
            every(settings.ended_runs_poll_ms / 1000, "ended runs", ended.look),
            every(_SWEEP_S, "left firings", Leftovers(firings, dispatch, carriers).sweep),
            _activity(db, firings, dispatch, feed, settings).run(),
        ]
    await asyncio.gather(db.open(), bus.start())
    background = [asyncio.create_task(outbox.run(), name="outbox"), *(asyncio.create_task(watch) for watch in watches)]
    await server.start()
    log.info("serving", role=role, port=server.port)
    await stop.wait()
    # Calls end first: they still need everything below.
    await server.stop()
    for task in background:
        task.cancel()
    await asyncio.gather(*background, return_exceptions=True)
    await carriers.close()
    await hypermedia.close()
    await outbox.close()
    await bus.close()
    await sessions.close()
    await runs.close()
    await feed.close()
    await db.close()


def _activity(
    db: Database, firings: FiringStore, dispatch: Dispatch, feed: ActivityFeed, settings: TriggersSettings
) -> ActivityMonitor:
    pace = Pace(
        interval_ms=settings.activity_poll_interval_ms,
        page_size=settings.activity_page_size,
        max_pages=settings.activity_max_pages,
        lease_ms=settings.activity_lease_ms,
    )
    feeds = FeedStore(db, now=now_ms, page_size=pace.page_size, max_pages=pace.max_pages)
    activity = ActivityStore(db, feeds, firings, now=now_ms)
    return ActivityMonitor(feeds, activity, feed, dispatch.carry_out, pace, now=now_ms)
