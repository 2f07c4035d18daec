"""Giving untitled sessions a title, beside the turn and never in its way."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from seed.sessions.v1 import turns_pb2

from libs import telemetry
from libs.errors import SeedError
from services.runs.domain import titles
from services.runs.domain.transcript import LogEvent
from services.runs.providers.contract import ConfigError, ModelConfig, ProviderError, ReplyDone, TextPart, UserMessage
from services.runs.providers.gateway import ModelGateway
from services.runs.worker.log import SessionLog

log = telemetry.get_logger("titles")

_REMEMBERED = 10_000


class Titler:
    """Asks the agent's own model for a title while nobody has named the session."""

    def __init__(self, gateway: ModelGateway, *, enabled: bool) -> None:
        self._gateway, self._enabled = gateway, enabled
        self._tried: OrderedDict[str, int] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def consider(
        self, begin: turns_pb2.BeginTurnResponse, model: ModelConfig, session: SessionLog, events: list[LogEvent]
    ) -> None:
        """Start making a title if the session wants one. Returns at once; failures are only logged."""
        if not self._enabled or begin.title_source not in ("", "system"):
            return
        said = titles.digest(events)
        tried = self._tried.get(begin.session.id, 0)
        if not said or tried >= titles.ATTEMPTS:
            return
        self._tried[begin.session.id] = tried + 1
        if len(self._tried) > _REMEMBERED:
            self._tried.popitem(last=False)
        task = asyncio.create_task(self._make(model, session, said), name="title")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _make(self, model: ModelConfig, session: SessionLog, said: str) -> None:
        text = ""
        try:
            message = UserMessage([TextPart(said)])
            async with self._gateway.stream(model, titles.SYSTEM, [message], []) as events:
                async for event in events:
                    if isinstance(event, ReplyDone):
                        text = event.text
            title, description = titles.parse(text)
            if title is not None:
                await session.describe(title, description, automatic=True)
        except (ProviderError, ConfigError, SeedError) as e:
            log.info("no title", error=type(e).__name__)

    async def close(self) -> None:
        """Give up on titles still being made."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
