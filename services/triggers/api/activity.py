"""What TriggersService does with activity triggers besides keeping them: combine, try out, give new agents one."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
from seed.triggers.v1 import triggers_pb2 as pb

from libs.errors import BadGateway
from libs.hypermedia.feed import ActivityFeed
from libs.hypermedia.server import AskFailed
from libs.protocol import json_bytes
from libs.protocol.text import required_text
from libs.protocol.triggers import AgentTriggerSource
from libs.rpc import Caller
from libs.wire import decode
from services.triggers.api.access import WRITER, AgentAccess, only
from services.triggers.domain.activity.match import match
from services.triggers.domain.activity.shapes import Activity
from services.triggers.domain.activity.summary import summary_of
from services.triggers.domain.activity.times import event_time
from services.triggers.domain.activity.watermark import Keyed, keyed
from services.triggers.domain.default import default_trigger
from services.triggers.domain.definition import ACTIVITY_SOURCES, Rules
from services.triggers.store.combining import Combination, CombineStore
from services.triggers.store.rows import trigger_of
from services.triggers.store.triggers import NOUN, Request, TriggerStore

_REPLAYED: Final = 100
_PAGE: Final = 50


class ActivityApi:
    """Serves its calls of TriggersService; the rest of them is TriggersApi's."""

    def __init__(
        self, access: AgentAccess, rules: Rules, triggers: TriggerStore, combining: CombineStore, feed: ActivityFeed
    ) -> None:
        self._access, self._rules, self._triggers = access, rules, triggers
        self._combining, self._feed = combining, feed

    async def CombineTriggers(self, request: pb.CombineTriggersRequest, caller: Caller) -> pb.CombineTriggersResponse:
        """Make one of two activity triggers."""
        first = await self._writable(caller, request.trigger_id)
        other = await self._writable(caller, request.other_trigger_id)
        asked = Combination(
            first, other, request.expected_updated_at, request.other_expected_updated_at, request.use_other_action
        )
        return pb.CombineTriggersResponse(trigger=trigger_of(await self._combining.combine(asked)))

    async def CreateDefaultTrigger(
        self, request: pb.CreateDefaultTriggerRequest, caller: Caller
    ) -> pb.CreateDefaultTriggerResponse:
        """Give a new agent its first trigger, once."""
        only(caller, "sessions")
        # An agent that is deleted meanwhile must not leave a trigger behind.
        access = await self._access.of(caller, request.agent_id, WRITER)
        asked = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        # No client can name such a request: blanks around its ids are dropped.
        once = Request(request.owner, f" default trigger of {access.agent_id}", asked)
        new = self._rules.trigger(default_trigger(request.agent_name, request.account_id))
        if await self._triggers.created_before(once) is None:
            await self._triggers.create(request.owner, access.agent_id, new, once)
        return pb.CreateDefaultTriggerResponse()

    async def DryRun(self, request: pb.DryRunRequest, caller: Caller) -> pb.DryRunResponse:
        """Tell which of the newest events a trigger would have fired for."""
        access = await self._access.of(caller, request.agent_id, WRITER)
        new = self._rules.trigger(decode(request.trigger) if request.trigger else None)
        if new.kind not in ACTIVITY_SOURCES:
            return pb.DryRunResponse()
        source: AgentTriggerSource = msgspec.json.decode(json_bytes(new.source), type=AgentTriggerSource)
        events = await self._newest(access.owner)
        found = (_match(source, event) for event in events)
        return pb.DryRunResponse(checked=len(events), matches=[each for each in found if each is not None])

    async def _newest(self, account: str) -> list[Keyed]:
        events: list[Activity] = []
        token = ""
        try:
            while len(events) < _REPLAYED:
                page = await self._feed.page(account, _PAGE, token)
                events += map(Activity, page.events)
                token = page.next_token
                if not token or not page.events:
                    break
        except AskFailed as e:
            raise BadGateway(f"The activity feed cannot be read: {e}") from None
        return keyed(events[:_REPLAYED])

    async def _writable(self, caller: Caller, trigger_id: str) -> str:
        named = required_text(trigger_id, "Trigger ID", allow_nul=True)
        # No id has a NUL, and PostgreSQL does not take one.
        row = await self._triggers.get("" if "\0" in named else named)
        await self._access.of(caller, row["agent_id"], WRITER, NOUN)
        return row["id"]


def _match(source: AgentTriggerSource, event: Keyed) -> pb.DryRunMatch | None:
    found = match(source, event.activity)
    if found is None:
        return None
    return pb.DryRunMatch(
        activity_key=event.key,
        activity_summary=summary_of(event.activity),
        at=event_time(event.activity) or 0,
        matched_conditions=[condition.id for condition in found.conditions],
    )
