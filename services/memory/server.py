"""Wiring of memory: build the parts, serve, stop in order."""

from __future__ import annotations

import asyncio

from seed.memory.v1 import memory_pb2, tools_pb2

from libs import telemetry
from libs.clock import now_ms
from libs.events import Bus
from libs.protocol.tools import CALLABLES
from libs.rpc import Peer, RpcServer, TokenSigner, TokenVerifier
from libs.store import AcceptedSignatures, Database, Outbox
from services.memory.api.access import AgentAccess
from services.memory.api.files import MemoryApi
from services.memory.api.tools import ToolDocumentsApi
from services.memory.domain.tools import builtins
from services.memory.settings import MemorySettings
from services.memory.store.tables import accepted_signatures, outbox
from services.memory.store.tools import ToolStore

log = telemetry.get_logger("memory")


class Service:
    """One process of memory: `start()`, then `stop()`; `port` is known in between."""

    def __init__(self, settings: MemorySettings) -> None:
        key = settings.internal_key
        self._bus = Bus(settings.nats_url, "memory")
        accepted = AcceptedSignatures(accepted_signatures)
        self._db = Database(settings.database_url, size=settings.database_pool, accepted=accepted)
        self._outbox = Outbox(self._db, outbox, self._bus.publish)
        self._sessions = Peer("sessions", settings.sessions_addr, TokenSigner("memory", key))
        access = AgentAccess(self._sessions)

        self._server = RpcServer(TokenVerifier("memory", key), host=settings.grpc_host, port=settings.grpc_port)
        self._server.add(memory_pb2.DESCRIPTOR.services_by_name["MemoryService"], MemoryApi(access))
        documents = ToolStore(self._db, self._outbox, builtins(CALLABLES.values()), now_ms)
        self._server.add(
            tools_pb2.DESCRIPTOR.services_by_name["ToolDocumentsService"], ToolDocumentsApi(access, documents)
        )
        self._background: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """Port of the gRPC listener."""
        return self._server.port

    async def start(self) -> None:
        """Connect and serve."""
        await self._db.open()
        await self._bus.start()
        self._background = [asyncio.create_task(self._outbox.run(), name="outbox")]
        await self._server.start()
        log.info("serving", port=self.port)

    async def stop(self) -> None:
        """Stop taking calls, let running ones end, publish what they caused, disconnect."""
        await self._server.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._bus.close()
        await self._outbox.close()
        await self._sessions.close()
        await self._db.close()


async def serve(settings: MemorySettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    service = Service(settings)
    await service.start()
    await stop.wait()
    await service.stop()
