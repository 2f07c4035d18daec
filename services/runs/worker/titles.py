"""Giving untitled sessions a title, beside the turn and never in its way."""

from __future__ import annotations

import asyncio

import msgspec

from libs import telemetry
from libs.errors import SeedError
from services.runs.domain import titles
from services.runs.domain.transcript import LogEvent
from services.runs.providers.contract import ConfigError, ModelConfig, ProviderError, ReplyDone, TextPart, UserMessage
from services.runs.providers.gateway import ModelGateway
from services.runs.worker.log import SessionLog

log = telemetry.get_logger("titles")


class Titler:
    """Asks the agent's own model for a title while nobody has named the session.

    Sessions counts the attempts, so that all workers together make no more than a session has.
    """

    def __init__(self, gateway: ModelGateway, *, enabled: bool) -> None:
        self._gateway, self._enabled = gateway, enabled
        self._making: dict[str, asyncio.Task[None]] = {}

    def consider(self, session_id: str, model: ModelConfig, session: SessionLog) -> None:
        """Start making a title if the session wants one. Returns at once; failures are only logged."""
        if not self._enabled or session_id in self._making:
            return
        task = self._making[session_id] = asyncio.create_task(self._make(model, session), name="title")
        task.add_done_callback(lambda _: self._making.pop(session_id, None))

    async def _make(self, model: ModelConfig, session: SessionLog) -> None:
        try:
            events = await session.take_title(titles.ATTEMPTS, titles.EVENTS)
            said = titles.digest([LogEvent(e.id, msgspec.json.decode(e.payload)) for e in events or ()])
            if not said:
                return
            title, description = titles.parse(await self._ask(model, said))
            if title is not None:
                await session.describe(title, description, automatic=True)
        except (ProviderError, ConfigError, SeedError) as e:
            log.info("no title", error=type(e).__name__)

    async def _ask(self, model: ModelConfig, said: str) -> str:
        text = ""
        async with self._gateway.stream(model, titles.SYSTEM, [UserMessage([TextPart(said)])], []) as events:
            async for event in events:
                if isinstance(event, ReplyDone):
                    text = event.text
        return text

    async def close(self) -> None:
        """Give up on titles still being made."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        await asyncio.gather(*making, return_exceptions=True)
