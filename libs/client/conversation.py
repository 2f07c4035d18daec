"""A session followed live: say something, and take what the turn does as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec

from libs.protocol import WsEvent
from libs.protocol.responses import MessageSessionResponse
from libs.protocol.sessions import SessionInfo
from libs.protocol.ws import WsSessionAppend, WsSessionChange, WsSessionPartial, WsSubscribed

from .client import Client
from .errors import ApiError


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the model, new since the last one."""

    text: str


@dataclass(frozen=True, slots=True)
class Logged:
    """A durable event: its id, its place, its payload (`MessageEvent` and its like, as a map)."""

    id: str
    seq: int
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Changed:
    """Fields of the session changed: status, title, plan."""

    session: SessionInfo


Happening = Text | Logged | Changed


class Conversation:
    """Use it with `async with`; then one `turn()` after another. `after_seq` leaves out what was said before."""

    def __init__(self, client: Client, session_id: str, after_seq: int | None = None) -> None:
        self._client = client
        self.session_id = session_id
        self._subscription = client.subscribe(f"sessions/{session_id}", after_seq)
        self._next: asyncio.Task[WsEvent] | None = None
        self.session: SessionInfo | None = None
        """The newest state seen."""

    async def __aenter__(self) -> Self:
        try:
            # The state comes right after the subscription holds; a refusal is raised here.
            while self.session is None:
                self._take(await anext(self._subscription))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop following."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
            self._next = None
        await self._subscription.aclose()

    async def stop(self) -> bool:
        """Stop the turn under way; was there one?"""
        return await self._client.stop(self.session_id)

    async def turn(self, text: str) -> AsyncGenerator[Happening, None]:
        """Send a message and yield what happens until its answer is in the log.

        Raises ApiError when the message is refused or its turn fails; the session goes on.
        """
        call = asyncio.create_task(self._client.message(self.session_id, text))
        answer: MessageSessionResponse | None = None
        seen: set[str] = set()
        try:
            while answer is None or not self._is_over(answer, seen):
                happening = await self._happening(call if answer is None else None)
                if isinstance(happening, MessageSessionResponse):
                    answer = happening
                elif happening is not None:
                    if isinstance(happening, Logged):
                        seen.add(happening.id)
                    yield happening
        finally:
            call.cancel()
            await asyncio.wait({call})

    def _is_over(self, answer: MessageSessionResponse, seen: set[str]) -> bool:
        if answer.assistant_event_id:
            return answer.assistant_event_id in seen
        # Queued behind another turn, or parked: the session says when nothing is at work any more.
        return self.session is not None and self.session.status != "streaming"

    async def _happening(self, call: asyncio.Task[MessageSessionResponse] | None) -> Happening | Any:
        if self._next is None:
            self._next = asyncio.create_task(anext(self._subscription))  # pyright: ignore[reportArgumentType]
        assert self._next is not None
        await asyncio.wait({self._next, call} if call else {self._next}, return_when=asyncio.FIRST_COMPLETED)
        if self._next.done():
            event, self._next = self._next, None
            return self._take(event.result())
        assert call is not None
        return call.result()

    def _take(self, event: WsEvent) -> Happening | None:
        if isinstance(event, WsSessionPartial):
            return Text(event.patch.text_delta) if isinstance(event.patch.text_delta, str) else None
        if isinstance(event, WsSessionAppend):
            return Logged(event.event.id, event.event.seq, msgspec.json.decode(event.event.event))
        if isinstance(event, WsSessionChange):
            self.session = event.value
            return Changed(event.value)
        assert isinstance(event, WsSubscribed), event
        return None


__all__ = ["ApiError", "Changed", "Conversation", "Happening", "Logged", "Text"]
