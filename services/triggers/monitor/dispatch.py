"""Carrying a firing out: a session is started, or a run is woken. Every step may be done again."""

from __future__ import annotations

from typing import Any

import msgspec
from seed.runs.v1 import feed_pb2, feed_pb2_grpc
from seed.sessions.v1 import triggered_pb2, triggered_pb2_grpc

from libs import telemetry
from libs.errors import NotFound, SeedError, Unavailable
from libs.hypermedia.embeds import Ask, resolved_markdown
from libs.protocol import json_bytes
from libs.richtext import embed_links
from libs.rpc import Peer
from libs.store import Row
from services.triggers.domain import firing as rules
from services.triggers.store.firings import FiringStore

log = telemetry.get_logger("triggers")

_SECONDS = 10.0
_TRIES = 8


class Dispatch:
    """Carries firings out, each once by its id whoever tries. `ask` reads what prompts embed."""

    def __init__(self, firings: FiringStore, sessions: Peer, runs: Peer, ask: Ask) -> None:
        self._firings, self._sessions, self._runs, self._ask = firings, sessions, runs, ask
        self._triggered: Any = sessions.stub(triggered_pb2_grpc.TriggeredServiceStub)
        self._feed: Any = runs.stub(feed_pb2_grpc.RunFeedServiceStub)

    async def carry_out(self, firing: Row) -> None:
        """Do what the firing is for and record what became of it. What is away is tried again by the sweep."""
        if firing["context"] is None:
            return
        try:
            continuation = msgspec.json.decode(firing["continuation"]) if firing["continuation"] else {}
            if continuation.get("kind") == rules.WAKE:
                await self._wake(firing, continuation)
            else:
                await self._start(firing)
        except Unavailable as e:
            log.warning("firing waits", firing=firing["id"], error=e.message)
        except NotFound:
            # The agent was deleted while the trigger was made, so nobody has dropped it.
            await self._firings.drop_agent(firing["agent_id"])
        except SeedError as e:
            log.warning("firing failed", firing=firing["id"], error=e.message)
            # A fault of ours may pass; what is refused stays so.
            if e.status < 500 or firing["tries"] >= _TRIES:
                await self._firings.failed(firing, e.message)

    async def forget(self, trigger_id: str) -> None:
        """Have sessions forget a deleted trigger; when sessions is away the sweep does it."""
        request = triggered_pb2.ForgetTriggerRequest(trigger_id=trigger_id)
        try:
            await self._sessions.call(self._triggered.ForgetTrigger, request, timeout_s=_SECONDS)
        except SeedError as e:
            log.warning("trigger not forgotten yet", trigger=trigger_id, error=e.message)
            return
        await self._firings.forgotten(trigger_id)

    async def _start(self, firing: Row) -> None:
        told = msgspec.json.decode(firing["context"])
        title = told.pop("title") or told["activitySummary"]
        request = triggered_pb2.StartTriggeredRequest(
            firing_id=firing["id"],
            trigger_id=firing["trigger_id"],
            owner=firing["account"],
            agent_id=firing["agent_id"],
            title=rules.title(told["triggerName"], title),
            message=rules.message({**told, "prompt": await self._prompt(told)}, firing["activity_key"]),
            summary=json_bytes(rules.summary_of(told)),
            context=json_bytes(told),
        )
        started = await self._sessions.call(
            self._triggered.StartTriggered, request, account=firing["account"], timeout_s=_SECONDS, retry=True
        )
        await self._firings.started(firing, started.session_id)

    async def _prompt(self, told: dict[str, Any]) -> str:
        links = embed_links(told["promptBlocks"])
        if not (links.blocks or links.inline):
            return told["prompt"]
        return await resolved_markdown(told["promptBlocks"], self._ask)

    async def _wake(self, firing: Row, continuation: dict[str, Any]) -> None:
        event = msgspec.json.decode(firing["context"])["activity"]
        request = feed_pb2.DeliverSignalRequest(
            delivery_id=firing["id"],
            account=firing["account"],
            run_id=continuation.get("runId", ""),
            signal=continuation["signal"],
            payload=rules.signal_payload(continuation, event),
        )
        answer = await self._runs.call(
            self._feed.DeliverSignal, request, account=firing["account"], timeout_s=_SECONDS, retry=True
        )
        await self._firings.woke(firing, bool(answer.run_id))
