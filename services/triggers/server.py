"""Wiring of triggers, for all roles."""

from __future__ import annotations

import asyncio
import contextlib
import time

from seed.triggers.v1 import triggers_pb2

from libs import telemetry
from libs.events import Bus
from libs.rpc import Peer, RpcServer, TokenSigner, TokenVerifier
from libs.store import AcceptedSignatures, Answers, Database, Outbox
from services.triggers.api.access import AgentAccess
from services.triggers.api.triggers import TriggersApi
from services.triggers.settings import TriggersSettings
from services.triggers.store.tables import accepted_signatures
from services.triggers.store.tables import outbox as outbox_rows
from services.triggers.store.triggers import TriggerStore

log = telemetry.get_logger("triggers")

ROLES = ("api", "monitor", "all")


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


async def serve(role: str, settings: TriggersSettings, stop: asyncio.Event) -> None:
    """Serve `role` until `stop` is set: api answers calls, monitor fires, all does both."""
    identity = "triggers-monitor" if role == "monitor" else "triggers-api"
    tokens = TokenSigner(identity, settings.internal_key)
    accepted = AcceptedSignatures(accepted_signatures)
    db = Database(settings.database_url, size=settings.database_pool, accepted=accepted)
    bus = Bus(settings.nats_url, identity)
    outbox = Outbox(db, outbox_rows, bus.publish)
    sessions = Peer("sessions", settings.sessions_addr, tokens)
    server = RpcServer(
        TokenVerifier("triggers", settings.internal_key),
        host=settings.grpc_host,
        port=settings.grpc_port,
        answers=Answers(db),
    )
    if role != "monitor":
        api = TriggersApi(AgentAccess(sessions), TriggerStore(db))
        server.add(triggers_pb2.DESCRIPTOR.services_by_name["TriggersService"], api)
    await asyncio.gather(db.open(), bus.start())
    background = [asyncio.create_task(outbox.run(), name="outbox")]
    await server.start()
    log.info("serving", role=role, port=server.port)
    await stop.wait()
    await server.stop()
    for task in background:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*background)
    await outbox.close()
    await bus.close()
    await sessions.close()
    await db.close()
