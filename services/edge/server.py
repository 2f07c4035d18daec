"""Wiring of the edge: build the parts, hand them to each other, serve, stop in order."""

from __future__ import annotations

import asyncio
import uuid

from aiohttp import web

from libs import telemetry
from libs.clock import now_ms
from libs.events import REVOKED, Bus, edge_subject
from services.edge.api.agents import AgentActions
from services.edge.api.attachments import AttachmentActions
from services.edge.api.body import Bodies
from services.edge.api.dispatch import Dispatcher
from services.edge.api.http import Routes
from services.edge.api.info import Info
from services.edge.api.memory import MemoryActions
from services.edge.api.messages import MessageActions, TurnNews
from services.edge.api.runs import RunActions
from services.edge.api.secrets import SecretActions
from services.edge.api.sessions import SessionActions
from services.edge.api.tools import ToolActions
from services.edge.api.triggers import TriggerActions
from services.edge.api.verify import Verifier
from services.edge.api.webhooks import Webhooks
from services.edge.api.websocket import WebSockets
from services.edge.domain.proxies import Proxies, networks
from services.edge.domain.rates import Rate, Rates
from services.edge.domain.replay import ReplayWindow
from services.edge.live.hub import Hub
from services.edge.live.signers import Signers
from services.edge.live.tasks import Tasks
from services.edge.live.tracker import Tracker
from services.edge.settings import EdgeSettings
from services.edge.upstream import Peers, Valkey

log = telemetry.get_logger("edge")

DRAIN_S = 10.0
LINGER_S = 2.0
"""How long the rest of a refused body is taken in, so that its sender gets to read the answer."""


class Edge:
    """One edge process. start() listens, `port` tells where, stop() drains."""

    def __init__(self, settings: EdgeSettings) -> None:
        s = self._settings = settings
        self.edge_id = uuid.uuid4().hex
        self._bus = Bus(s.nats_url, f"edge-{self.edge_id[:8]}")
        self._peers = Peers(
            key=s.internal_key,
            sessions_addr=s.sessions_addr,
            secrets_addr=s.secrets_addr,
            runs_addr=s.runs_addr,
            memory_addr=s.memory_addr,
            triggers_addr=s.triggers_addr,
        )
        self._valkey = Valkey(s.redis_url)
        self._news = TurnNews(self._peers)
        self._window = ReplayWindow(self._valkey, now_ms=now_ms, skew_ms=s.clock_skew_ms)
        self._rates = Rates(
            self._valkey,
            account=Rate(s.requests_per_account * s.rate_limits, s.request_burst_per_account),
            address=Rate(s.requests_per_address * s.rate_limits, s.request_burst_per_address),
        )
        verifier = Verifier(self._peers, now_ms=now_ms, skew_ms=s.clock_skew_ms, max_depth=s.nesting_limit)
        self._notify = edge_subject(self.edge_id)
        messages = MessageActions(self._peers, self._news.waits, notify=self._notify, wait_s=s.message_wait_ms / 1000)
        memory = MemoryActions(self._peers)
        attachments = AttachmentActions(self._peers, memory)
        areas = (
            AgentActions(self._peers).handlers(),
            SessionActions(self._peers).handlers(),
            SecretActions(self._peers).handlers(),
            RunActions(self._peers).handlers(),
            ToolActions(self._peers).handlers(),
            TriggerActions(self._peers).handlers(),
            messages.handlers(),
            attachments.handlers(),
            memory.handlers(),
        )
        streams = {**attachments.streams(), **memory.streams()}
        dispatcher = Dispatcher(verifier, self._window, areas, streams, self._rates)
        bodies = Bodies(limit=s.body_limit_bytes, budget=s.bodies_in_flight_bytes, timeout_s=s.body_timeout_ms / 1000)
        self._tasks = Tasks()
        self._hub = Hub(
            self._peers,
            self._valkey,
            self._bus,
            self._tasks,
            limit=s.subscriptions_per_socket,
            heads_interval_s=s.heads_interval_ms / 1000,
        )
        self._tracker = Tracker(
            per_account=s.sockets_per_account,
            per_address=s.sockets_per_address,
            ping_s=s.ping_interval_ms / 1000,
            pong_s=s.pong_timeout_ms / 1000,
        )
        self._signers = Signers(self._peers)
        self._sockets = WebSockets(
            verifier, self._hub, self._tracker, self._signers, self._rates, queue_bytes=s.send_queue_bytes
        )
        webhooks = Webhooks(self._peers, bodies, self._rates, limit=s.webhook_body_bytes)
        self._routes = Routes(
            dispatcher,
            bodies,
            Info(s),
            self._sockets.handle,
            self._rates,
            webhooks,
            Proxies(networks(s.trusted_proxies)),
        )
        self._runner: web.ServerRunner | None = None
        self._background: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Connect and listen. Raises OSError when the address is taken."""
        await self._bus.start()
        await self._bus.subscribe(self._notify, self._news.on_message)
        self._bus.on_restored(self._news.waits.ask_now)
        self._bus.on_restored(self._hub.restored)
        await self._bus.subscribe(REVOKED, self._signers.on_message)
        self._bus.on_restored(self._signers.recheck)
        self._background = asyncio.create_task(self._run_background(), name="edge")
        await self._tasks.ready()
        server = web.Server(self._routes.handle, access_log=None, auto_decompress=False, lingering_time=LINGER_S)
        self._runner = web.ServerRunner(server, shutdown_timeout=DRAIN_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.http_hostname, self._settings.http_port, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]
        log.info("listening", host=self._settings.http_hostname, port=self.port)

    async def _run_background(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tasks.run())
            group.create_task(self._window.renew())
            group.create_task(self._rates.share())
            group.create_task(self._hub.run())
            group.create_task(self._tracker.keep_alive())
            group.create_task(self._signers.run())

    async def stop(self) -> None:
        """Stop in order: let waiting callers and sockets go, stop accepting, answer what runs, disconnect."""
        self._news.waits.close()
        self._sockets.close_all()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)
        await self._window.close()
        await self._bus.close()
        await self._peers.close()
        await self._valkey.close()


async def serve(settings: EdgeSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    edge = Edge(settings)
    try:
        await edge.start()
        await stop.wait()
    finally:
        await edge.stop()
