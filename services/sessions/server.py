"""Wiring of sessions: build the parts, serve, stop in order."""

from __future__ import annotations

import asyncio

from seed.audit.v1 import audit_pb2
from seed.sessions.v1 import (
    access_pb2,
    agents_pb2,
    attachments_pb2,
    members_pb2,
    sessions_pb2,
    threads_pb2,
    triggered_pb2,
    turns_pb2,
    user_actions_pb2,
)

from libs import telemetry
from libs.blobs import Blobs
from libs.clock import now_ms
from libs.errors import SeedError
from libs.events import Bus
from libs.rpc import Peer, RpcServer, TokenSigner, TokenVerifier
from libs.store import AcceptedSignatures, Answers, Database, Outbox
from libs.store.audit import Audit
from services.sessions.api.access import AccessApi
from services.sessions.api.agents import AgentsApi
from services.sessions.api.attachments import AttachmentsApi
from services.sessions.api.audit import AuditApi
from services.sessions.api.members import MembersApi
from services.sessions.api.newcomers import Newcomers
from services.sessions.api.peers import Memory, References, Runs, Triggers
from services.sessions.api.sessions import SessionsApi
from services.sessions.api.space import SpaceIndexes
from services.sessions.api.threads import ThreadsApi
from services.sessions.api.triggered import TriggeredApi
from services.sessions.api.turns import TurnsApi
from services.sessions.api.user_actions import UserActionsApi
from services.sessions.domain.attachments import Bounds
from services.sessions.domain.turns import CANCELED, FAILED, SUCCEEDED, error_event
from services.sessions.settings import SessionsSettings
from services.sessions.store.access import AccessStore
from services.sessions.store.agents import AgentStore
from services.sessions.store.attachments import AttachmentStore
from services.sessions.store.blobs import BlobStore
from services.sessions.store.children import ChildStore
from services.sessions.store.continuations import ContinuationStore
from services.sessions.store.deletions import DeletionStore
from services.sessions.store.ledger import step
from services.sessions.store.members import MemberStore
from services.sessions.store.messages import MessageStore
from services.sessions.store.newcomers import NewcomerStore
from services.sessions.store.rows import Row, start_of
from services.sessions.store.sessions import SessionStore
from services.sessions.store.sweep import SweepStore
from services.sessions.store.tables import accepted_signatures, audit, outbox
from services.sessions.store.threads import ThreadStore
from services.sessions.store.titling import TitleStore
from services.sessions.store.triggered import TriggeredStore
from services.sessions.store.turns import Ending, TurnStore
from services.sessions.store.uploads import UploadStore
from services.sessions.store.user_actions import UserActionStore

log = telemetry.get_logger("sessions")

_ENDED = (SUCCEEDED, FAILED, CANCELED)
_LOST = "The run failed"


class Service:
    """One process of sessions: `start()`, then `stop()`; `port` is known in between."""

    def __init__(self, settings: SessionsSettings) -> None:
        key, sweep_ms = settings.internal_key, settings.turn_sweep_ms
        self._sweep_s = min(1.0, sweep_ms / 1000)
        self._bus = Bus(settings.nats_url, "sessions")
        accepted = AcceptedSignatures(accepted_signatures)
        self._db = Database(settings.database_url, size=settings.database_pool, accepted=accepted)
        self._outbox = Outbox(self._db, outbox, self._bus.publish)
        tokens = TokenSigner("sessions", key)
        self._secrets = Peer("secrets", settings.secrets_addr, tokens)
        self._runs_peer = Peer("runs", settings.runs_addr, tokens)
        self._memory_peer = Peer("memory", settings.memory_addr, tokens)
        self._triggers_peer = Peer("triggers", settings.triggers_addr, tokens)

        access = AccessStore(self._db)
        sessions = SessionStore(self._db, self._outbox, now=now_ms)
        deletions = DeletionStore(self._db, self._outbox, now=now_ms, sweep_ms=sweep_ms)
        messages = MessageStore(self._db, self._outbox, now=now_ms, sweep_ms=sweep_ms)
        references = References(self._secrets)
        self._children = ChildStore(self._db, self._outbox, now=now_ms, sweep_ms=settings.turn_sweep_ms)
        self._turns = TurnStore(self._db, self._outbox, self._children, now=now_ms)
        continued = ContinuationStore(self._db, self._outbox, now=now_ms, sweep_ms=sweep_ms)
        drops = (Memory(self._memory_peer).drop, Triggers(self._triggers_peer).drop)
        self._runs = Runs(self._runs_peer, deletions, *drops)
        triggered = TriggeredStore(self._db, self._outbox, now=now_ms, sweep_ms=sweep_ms)
        self._spaces = SpaceIndexes(self._memory_peer, self._triggers_peer, self._bus, now_ms)
        self._left = SweepStore(self._db, now=now_ms, sweep_ms=sweep_ms)
        self._actions = UserActionStore(self._db, self._outbox, now=now_ms, lease_ms=settings.user_action_lease_ms)

        bounds = Bounds(
            attachment_bytes=settings.attachment_bytes,
            attachments_per_session=settings.attachments_per_session,
            uploads_per_account=settings.uploads_per_account,
            upload_idle_ms=settings.upload_idle_ms,
            storage_bytes=settings.storage_per_account_bytes,
        )
        self._blobs = BlobStore(self._db, Blobs(settings.blob_url), now=now_ms)
        attachments = AttachmentStore(self._db, self._blobs, bounds, now=now_ms)
        self._uploads = UploadStore(self._db, self._blobs, attachments, bounds, now=now_ms)

        # A message is known by its signature already, and its repeat waits for the turn as the first did.
        # A use of a verb must not begin twice: runs keeps what it was answered.
        besides = ("SessionsService.MessageSession", "UserActionsService.BeginUserAction")
        answers = Answers(self._db, besides=besides)
        verifier = TokenVerifier("sessions", key)
        self._server = RpcServer(verifier, host=settings.grpc_host, port=settings.grpc_port, answers=answers)
        newcomers = NewcomerStore(self._db, now=now_ms, first_ms=sweep_ms)
        self._newcomers = Newcomers(self._triggers_peer, newcomers)
        agents = AgentStore(self._db, self._outbox, newcomers, now=now_ms)
        noted = Audit(self._db, audit)
        members = MemberStore(self._db, self._outbox, noted, now=now_ms)
        for services, name, api in (
            (audit_pb2, "AuditService", AuditApi(noted)),
            (access_pb2, "AccessService", AccessApi(access)),
            (
                agents_pb2,
                "AgentsService",
                AgentsApi(access, agents, sessions, deletions, references, self._runs, self._newcomers),
            ),
            (members_pb2, "MembersService", MembersApi(access, members)),
            (
                sessions_pb2,
                "SessionsService",
                SessionsApi(
                    access,
                    sessions,
                    messages,
                    deletions,
                    references,
                    self._runs,
                    self._children,
                    self._spaces,
                    triggered,
                    now_ms,
                ),
            ),
            (attachments_pb2, "AttachmentsService", AttachmentsApi(access, attachments, self._uploads, bounds)),
            (
                turns_pb2,
                "TurnsService",
                TurnsApi(
                    self._turns, self._children, continued, TitleStore(self._db), self._spaces, now_ms, self._bus.flush
                ),
            ),
            (threads_pb2, "ThreadsService", ThreadsApi(ThreadStore(self._db))),
            (triggered_pb2, "TriggeredService", TriggeredApi(triggered, self._runs)),
            (user_actions_pb2, "UserActionsService", UserActionsApi(access, self._actions)),
        ):
            self._server.add(services.DESCRIPTOR.services_by_name[name], api)
        self._background: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """Port of the gRPC listener."""
        return self._server.port

    async def start(self) -> None:
        """Connect and serve."""
        await self._db.open()
        await self._bus.start()
        await self._spaces.listen()
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
        await self._secrets.close()
        await self._runs_peer.close()
        await self._memory_peer.close()
        await self._triggers_peer.close()
        await self._db.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_s)
            try:
                for deletion in await self._left.deletions():
                    await self._runs.detach(deletion)
                for turn in await self._left.turns():
                    await self._announce(turn)
                await self._newcomers.sweep()
                await self._actions.give_up()
                await self._left.forget()
                await self._uploads.expire()
                await self._blobs.sweep()
            except SeedError as e:
                log.warning("sweep waits", error=e.message)
            except Exception as e:  # the sweep must outlive any single failure
                log.error("sweep failed", error=type(e).__name__, exc_info=e)

    async def _announce(self, turn: Row) -> None:
        """Start the run of a turn that nobody has begun; settle the turn when its run has ended without saying so."""
        run_id: str = turn["run_id"]
        try:
            status = await self._runs.start(start_of(turn))
            if status not in _ENDED:
                return
            if status == CANCELED or turn["canceled"]:
                await self._turns.finish(run_id, 0, (), Ending(CANCELED))
            elif status == FAILED:
                error = step("error", error_event(_LOST))
                await self._turns.finish(run_id, max(1, turn["attempt"]), [error], Ending(FAILED, _LOST, 502))
            else:
                await self._turns.finish(run_id, max(1, turn["attempt"]), (), Ending(SUCCEEDED))
        except SeedError as e:
            log.warning("turn not started yet", run=run_id, error=e.message)


async def serve(settings: SessionsSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    service = Service(settings)
    await service.start()
    await stop.wait()
    await service.stop()
