"""Wiring of memory: build the parts, serve, stop in order."""

from __future__ import annotations

import asyncio

from seed.memory.v1 import memory_pb2, tools_pb2

from libs import telemetry
from libs.blobs import Blobs
from libs.clock import now_ms
from libs.egress import EgressPolicy
from libs.errors import SeedError
from libs.events import Bus
from libs.hypermedia.server import HypermediaServer
from libs.objects import Objects
from libs.protocol.tools import CALLABLES
from libs.rpc import Peer, RpcServer, TokenSigner, TokenVerifier
from libs.store import AcceptedSignatures, Answers, Database, Outbox
from services.memory.api.access import AgentAccess
from services.memory.api.files import MemoryApi
from services.memory.api.tools import ToolDocumentsApi
from services.memory.domain.tools import builtins
from services.memory.domain.uploads import Bounds
from services.memory.outside import Downloader
from services.memory.settings import MemorySettings
from services.memory.store.drops import DropStore
from services.memory.store.files import FileStore
from services.memory.store.objects import LOOSE
from services.memory.store.spaces import SpaceStore
from services.memory.store.tables import accepted_signatures, outbox
from services.memory.store.tools import ToolStore
from services.memory.store.uploads import UploadStore

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

        self._sweep_s = settings.memory_sweep_ms / 1000
        self._objects = Objects(self._db, Blobs(settings.blob_url), LOOSE, "memory", now=now_ms)
        self._drops = DropStore(self._db, now=now_ms)
        spaces = SpaceStore(self._db, storage_bytes=settings.storage_per_account_bytes)
        files = FileStore(self._db, self._outbox, self._objects, spaces, now=now_ms)
        bounds = Bounds(settings.uploads_per_account, settings.upload_idle_ms)
        self._uploads = UploadStore(self._db, self._outbox, self._objects, files, spaces, bounds, now=now_ms)
        policy = EgressPolicy(settings.allow_private_downloads, settings.allowed_hosts())
        gateway = settings.ipfs_server_url or settings.hm_server_url
        self._downloader = Downloader(policy, gateway, settings.download_bytes)
        self._hypermedia = HypermediaServer(settings.hm_server_url)
        outside = (self._downloader, self._hypermedia)
        memory = MemoryApi(self._db, access, files, self._uploads, spaces, self._drops, *outside, now_ms)

        verifier, answers = TokenVerifier("memory", key), Answers(self._db)
        self._server = RpcServer(verifier, host=settings.grpc_host, port=settings.grpc_port, answers=answers)
        self._server.add(memory_pb2.DESCRIPTOR.services_by_name["MemoryService"], memory)
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
        self._background = [
            asyncio.create_task(self._outbox.run(), name="outbox"),
            asyncio.create_task(self._sweep(), name="sweep"),
        ]
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
        await self._downloader.close()
        await self._hypermedia.close()
        await self._sessions.close()
        await self._db.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_s)
            try:
                await self._uploads.expire()
                await self._objects.sweep()
                await self._drops.forget()
            except SeedError as e:
                log.warning("sweep waits", error=e.message)
            except Exception as e:  # the sweep must outlive any single failure
                log.error("sweep failed", error=type(e).__name__, exc_info=e)


async def serve(settings: MemorySettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    service = Service(settings)
    await service.start()
    await stop.wait()
    await service.stop()
