"""Space indexes: asked for once an agent, and again when memory or triggers say that something has changed.

A turn waits for it in no case but the first, and then only for a moment: without an answer the prompt has no index.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from seed.memory.v1 import memory_pb2, memory_pb2_grpc, tools_pb2, tools_pb2_grpc
from seed.triggers.v1 import triggers_pb2, triggers_pb2_grpc

from libs import events, telemetry
from libs.errors import SeedError
from libs.events import Bus
from libs.protocol.tools import callable_name, granted_callables
from libs.rpc import Peer
from services.sessions.domain.space import Space, ToolLine

log = telemetry.get_logger("sessions")

KEPT = 10_000
"""Agents whose Space is remembered."""
FRESH_MS = 600_000
"""How long one is believed while nobody says otherwise."""
AGAIN_MS = 2_000
"""How long a service that did not answer is left alone."""
WAIT_S = 0.5


class SpaceIndexes:
    """The index for prompts. `listen()` before it is used; `now` gives Unix milliseconds."""

    def __init__(self, memory: Peer, triggers: Peer, bus: Bus, now: Callable[[], int]) -> None:
        self._memory, self._triggers, self._bus, self._now = memory, triggers, bus, now
        self._files: Any = memory.stub(memory_pb2_grpc.MemoryServiceStub)
        self._tools: Any = memory.stub(tools_pb2_grpc.ToolDocumentsServiceStub)
        self._wakers: Any = triggers.stub(triggers_pb2_grpc.TriggersServiceStub)
        self._known: OrderedDict[str, tuple[Space | None, int]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[Space | None]] = {}

    async def listen(self) -> None:
        """Hear what changes. What may have been missed is asked for again."""
        await self._bus.subscribe(events.SPACE_HINTS, self._changed)
        self._bus.on_restored(self._missed)

    async def text(self, owner: str, agent_id: str, definition: dict[str, Any], asked: list[str] | None) -> str:
        """The index of an agent in a turn; empty when it is not to be had.

        `asked` are the tools that a delegation narrows it to, None without that.
        """
        space, until = self._known.get(agent_id, (None, 0))
        # What changes is not heard while the bus is away.
        if until <= self._now() or (space is not None and not self._bus.connected):
            space = await self._ask(owner, agent_id)
        if space is None:
            return ""
        callables = granted_callables(definition.get("tools"))
        if asked is not None:
            callables &= {callable_name(name) for name in asked}
        return space.index(callables)

    async def _ask(self, owner: str, agent_id: str) -> Space | None:
        task = self._asked.get(agent_id)
        if task is None:
            task = self._asked[agent_id] = asyncio.create_task(self._fetch(owner, agent_id), name="space")
            task.add_done_callback(lambda done: self._answered(agent_id, done))
        return await asyncio.shield(task)

    def _answered(self, agent_id: str, task: asyncio.Task[Space | None]) -> None:
        if self._asked.get(agent_id) is not task:
            # Something has changed meanwhile: this is what was.
            return
        del self._asked[agent_id]
        if task.cancelled():
            return
        space = task.result()
        self._known[agent_id] = (space, self._now() + (AGAIN_MS if space is None else FRESH_MS))
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    async def _fetch(self, owner: str, agent_id: str) -> Space | None:
        async def call(peer: Peer, method: Any, request: Any) -> Any:
            return await peer.call(method, request, account=owner, timeout_s=WAIT_S)

        try:
            files, tools, triggers = await asyncio.gather(
                call(self._memory, self._files.Summary, memory_pb2.SummaryRequest(agent_id=agent_id)),
                call(self._memory, self._tools.ListTools, tools_pb2.ListToolsRequest(agent_id=agent_id, brief=True)),
                call(self._triggers, self._wakers.ListTriggers, triggers_pb2.ListTriggersRequest(agent_id=agent_id)),
            )
        except SeedError as e:
            log.warning("prompt without its Space index", agent=agent_id, error=e.message)
            return None
        except Exception as e:  # a fault of ours costs the index, never the turn
            log.error("no Space index", agent=agent_id, error=type(e).__name__, exc_info=e)
            return None
        return Space(
            files=files.files,
            entries=files.top_count,
            top=[f"{e.path}/ ({e.entry_count})" if e.directory else e.path for e in files.top],
            tools=[ToolLine(t.name, t.kind, t.summary) for t in tools.tools if t.enabled],
            triggers=[t.name for t in triggers.triggers if t.enabled],
        )

    def _changed(self, subject: str, _: bytes) -> None:
        agent_id = events.agent_of(subject)
        self._known.pop(agent_id, None)
        self._asked.pop(agent_id, None)

    async def _missed(self) -> None:
        self._known.clear()
        self._asked.clear()
