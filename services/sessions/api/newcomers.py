"""First triggers of new agents (triggers.md, section 8)."""

from __future__ import annotations

from seed.triggers.v1 import triggers_pb2, triggers_pb2_grpc

from libs import telemetry
from libs.errors import Invalid, NotFound, SeedError
from libs.rpc import Peer
from services.sessions.store.newcomers import Newcomer, NewcomerStore

log = telemetry.get_logger("sessions")

_SECONDS = 2.0


class Newcomers:
    """Asks triggers for the default trigger of new agents: at once, and by the sweep for those that it could not."""

    def __init__(self, triggers: Peer, newcomers: NewcomerStore) -> None:
        self._triggers, self._newcomers = triggers, newcomers
        self._stub = triggers.stub(triggers_pb2_grpc.TriggersServiceStub)

    async def greet(self, newcomer: Newcomer) -> bool:
        """Ask for one agent's, within 2 s; False when triggers is away: the sweep does it then."""
        request = triggers_pb2.CreateDefaultTriggerRequest(
            agent_id=newcomer.agent_id,
            owner=newcomer.owner,
            agent_name=newcomer.name,
            account_id=newcomer.signing_account,
        )
        try:
            await self._ask(request, newcomer)
            await self._newcomers.greeted(newcomer)
        except SeedError as e:
            log.warning("default trigger not made yet", agent=newcomer.agent_id, error=e.message)
            return False
        return True

    async def sweep(self) -> None:
        """Ask for those that are left."""
        for newcomer in await self._newcomers.due():
            if not await self.greet(newcomer):
                break

    async def _ask(self, request: triggers_pb2.CreateDefaultTriggerRequest, newcomer: Newcomer) -> None:
        try:
            await self._triggers.call(
                self._stub.CreateDefaultTrigger, request, account=newcomer.owner, timeout_s=_SECONDS
            )
        except (Invalid, NotFound) as e:
            # It will not do so later either, and an agent does without.
            log.warning("default trigger refused", agent=newcomer.agent_id, error=e.message)
