"""TriggersService."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Awaitable, Callable

from seed.triggers.v1 import triggers_pb2 as pb

from libs.errors import NotFound, TooOld
from libs.protocol.text import required_text
from libs.rpc import Caller
from libs.store import Row
from libs.wire import decode, encode
from services.triggers.api.access import READER, WRITER, Access, AgentAccess, only
from services.triggers.domain.definition import WEBHOOK, Rules, is_compound
from services.triggers.domain.rate import Rate
from services.triggers.domain.webhooks import WebhookSecrets, delivery
from services.triggers.store.firings import FiringStore
from services.triggers.store.rows import firing_of, trigger_of
from services.triggers.store.triggers import NOUN, Request, TriggerStore, trigger_source

_TOO_OLD = "This trigger needs a newer client"
_NO_WEBHOOK = "Webhook not found"


class TriggersApi:
    """Serves triggers of one database.

    `carry_out` takes new firings, to do what they are for after the answer; `forget` is told of deleted triggers.
    """

    def __init__(
        self,
        access: AgentAccess,
        rules: Rules,
        triggers: TriggerStore,
        firings: FiringStore,
        secrets: WebhookSecrets,
        deliveries: Rate,
        carry_out: Callable[[Row], None],
        forget: Callable[[str], Awaitable[None]],
        *,
        webhooks: bool,
    ) -> None:
        self._access, self._rules, self._triggers, self._firings = access, rules, triggers, firings
        self._secrets, self._deliveries = secrets, deliveries
        self._carry_out, self._forget, self._webhooks = carry_out, forget, webhooks

    async def ListTriggers(self, request: pb.ListTriggersRequest, caller: Caller) -> pb.ListTriggersResponse:
        """The triggers of an agent."""
        access = await self._access.of(caller, request.agent_id, READER)
        rows = await self._triggers.of_agent(access.agent_id)
        return pb.ListTriggersResponse(triggers=[trigger_of(row) for row in rows])

    async def GetTrigger(self, request: pb.GetTriggerRequest, caller: Caller) -> pb.GetTriggerResponse:
        """A trigger with its newest firings."""
        row, access = await self._authorized(caller, request.trigger_id, READER)
        firings, session_ids = await self._triggers.firings(row["id"])
        may_know = access.edits and caller.service == "edge"
        return pb.GetTriggerResponse(
            trigger=trigger_of(row),
            firings=[firing_of(firing) for firing in firings],
            sessions=await self._access.sessions(row["agent_id"], session_ids),
            # Nobody behind the edge has a use for it.
            webhook_secret=self._secret(row["id"], row["webhook_nonce"]) if may_know else "",
        )

    async def CreateTrigger(self, request: pb.CreateTriggerRequest, caller: Caller) -> pb.CreateTriggerResponse:
        """Store a new trigger, once by the client's id."""
        access = await self._access.of(caller, request.agent_id, WRITER)
        repeat = None
        if request.HasField("client_request_id"):
            client_id = required_text(request.client_request_id, "Client request ID")
            compared = hashlib.sha256(encode([access.agent_id, request.trigger])).digest()
            # Agent-scoped creations belong to the owner (envelope.md, section 7).
            repeat = Request(access.owner, client_id, compared)
        made = await self._triggers.created_before(repeat)
        if made is None:
            new = self._rules.trigger(_document(request.trigger))
            made = await self._triggers.create(access.owner, access.agent_id, new, repeat)
        return pb.CreateTriggerResponse(
            trigger=made.trigger, webhook_secret=self._secret(made.trigger.id, made.webhook_nonce)
        )

    async def UpdateTrigger(self, request: pb.UpdateTriggerRequest, caller: Caller) -> pb.UpdateTriggerResponse:
        """Replace the keys that the patch has."""
        row, _ = await self._authorized(caller, request.trigger_id, WRITER)
        if request.old_client and is_compound(trigger_source(row)):
            raise TooOld(_TOO_OLD)
        expected = request.expected_updated_at if request.HasField("expected_updated_at") else None
        changes = self._rules.patch(_document(request.patch))
        row = await self._triggers.update(row["id"], changes, expected)
        return pb.UpdateTriggerResponse(trigger=trigger_of(row))

    async def DeleteTrigger(self, request: pb.DeleteTriggerRequest, caller: Caller) -> pb.DeleteTriggerResponse:
        """Remove a trigger with its firings."""
        row, _ = await self._authorized(caller, request.trigger_id, WRITER)
        await self._triggers.delete(row["id"])
        await self._forget(row["id"])
        return pb.DeleteTriggerResponse(trigger_id=row["id"])

    async def DropAgent(self, request: pb.DropAgentRequest, caller: Caller) -> pb.DropAgentResponse:
        """Remove the triggers of a deleted agent."""
        only(caller, "sessions")
        await self._triggers.drop_agent(request.agent_id)
        return pb.DropAgentResponse()

    async def DeliverWebhook(self, request: pb.DeliverWebhookRequest, caller: Caller) -> pb.DeliverWebhookResponse:
        """Fire a webhook trigger."""
        only(caller, "edge")
        row = await self._webhook(request.trigger_id, request.secret)
        self._deliveries.take(row["id"])
        activation = delivery(request.body, request.idempotency_key, str(uuid.uuid4()))
        admitted = await self._firings.admit(row["id"], lambda now: activation if now["kind"] == WEBHOOK else None)
        if admitted is None:
            raise NotFound(_NO_WEBHOOK)
        if admitted.firing is not None:
            self._carry_out(admitted.firing)
        return pb.DeliverWebhookResponse(duplicate=admitted.firing is None)

    async def _webhook(self, trigger_id: str, secret: str) -> Row:
        try:
            row = await self._triggers.get(_id(trigger_id))
        except NotFound:
            raise NotFound(_NO_WEBHOOK) from None
        nonce = row["webhook_nonce"]
        known = nonce is not None and self._secrets.is_secret(row["id"], nonce, secret)
        if not (known and row["enabled"] and self._webhooks):
            raise NotFound(_NO_WEBHOOK)
        return row

    async def _authorized(self, caller: Caller, trigger_id: str, need: str) -> tuple[Row, Access]:
        row = await self._triggers.get(_id(required_text(trigger_id, "Trigger ID", allow_nul=True)))
        return row, await self._access.of(caller, row["agent_id"], need, NOUN)

    def _secret(self, trigger_id: str, nonce: bytes | None) -> str:
        return "" if nonce is None else self._secrets.secret(trigger_id, nonce)


def _document(body: bytes) -> object:
    return decode(body) if body else None


def _id(value: str) -> str:
    # PostgreSQL text cannot hold NUL, and no id has one.
    return "" if "\0" in value else value
