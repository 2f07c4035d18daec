"""One subscribed key: its events in order, each durable one once, whatever happens to the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from msgspec import UNSET, UnsetType

from libs.protocol import WsEvent
from libs.protocol.ws import WsRunAppend, WsSessionAppend, WsSessionPartial, WsSubscribed

from .errors import ClientError

QUEUE_EVENTS = 10_000
"""Events that may wait for a reader. Beyond it the whole socket waits, and a server that gives up is resumed from."""


class Gap(Exception):
    """A durable event is missing before this one: the key must be subscribed again."""


class _End:
    def __init__(self, error: ClientError | None) -> None:
        self.error = error


class Subscription:
    """Async iterator of the events of one key; end it with `aclose()` or `async with`.

    - Durable events come in ascending `seq`, without gaps or doubles, over any number of reconnects.
    - `WsSubscribed` comes first, and again after each reconnect, followed by the current state (`change`).
    - Text deltas come once: what a new socket repeats of a text in flight is left out. When a text was begun anew under
      the same id, the delta is the whole new text; `text(partial_id)` always tells the text so far.
    - `account/…` and `agents/…` have no cursor: what happens while no socket is open is not repeated there.
    - It ends with ApiError when the server refuses the key (it is gone, or access to it is), with ConnectionLost when
      the server stays away.
    """

    def __init__(self, key: str, after_seq: int | None, close: Callable[[Subscription], Awaitable[None]]) -> None:
        self.key = key
        self.seq = after_seq or 0
        """Last durable `seq` seen on a `sessions/` key: hand it to a later subscription to go on from here."""
        self._floor = self.seq
        self._run_seq: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._done: set[str] = set()
        self._fresh: set[str] = set()
        self._queue: asyncio.Queue[WsEvent | _End] = asyncio.Queue(QUEUE_EVENTS)
        self._ended: _End | None = None
        self._close = close

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WsEvent:
        if self._ended is not None and self._queue.empty():
            return self._finish(self._ended)
        item = await self._queue.get()
        if isinstance(item, _End):
            return self._finish(item)
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop receiving."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self.end(None)
        await self._close(self)

    def text(self, partial_id: str) -> str:
        """The text so far of a text block in flight; empty when it is unknown or durable."""
        return self._texts.get(partial_id, "")

    @property
    def resume_after(self) -> int:
        """`afterSeq` for a new socket. Journals of a tree number each run for itself, so those start at the floor."""
        return self.seq if self.key.startswith("sessions/") else self._floor

    @property
    def ended(self) -> bool:
        """Will nothing more be fed?"""
        return self._ended is not None

    async def feed(self, event: WsEvent) -> None:
        """Take an event of this key from the socket. Raises Gap, and takes nothing, when one before it is missing."""
        if self._ended is None and self._admit(event):
            await self._queue.put(event)

    def end(self, error: ClientError | None) -> None:
        """Let the reader finish what is queued, then stop it, with `error` when there is one."""
        if self._ended is None:
            self._ended = _End(error)
            if not self._queue.full():
                self._queue.put_nowait(self._ended)

    def _finish(self, end: _End) -> WsEvent:
        if end.error is not None:
            raise end.error
        raise StopAsyncIteration

    def _admit(self, event: WsEvent) -> bool:
        if not self.key.startswith(("sessions/", "runs/")):
            return True
        if isinstance(event, WsSessionAppend):
            if event.event.seq <= self.seq:
                return False
            if event.event.seq > self.seq + 1:
                raise Gap
            self.seq = event.event.seq
            for partial_id in self._done:
                self._texts.pop(partial_id, None)
            self._done.clear()
        elif isinstance(event, WsRunAppend):
            seen = self._run_seq.get(event.run_id)
            if event.seq <= (self._floor if seen is None else seen):
                return False
            if seen is not None and event.seq > seen + 1:
                raise Gap
            self._run_seq[event.run_id] = event.seq
        elif isinstance(event, WsSessionPartial):
            return self._admit_partial(event)
        elif isinstance(event, WsSubscribed):
            self._fresh.clear()
        return True

    def _admit_partial(self, event: WsSessionPartial) -> bool:
        partial_id, patch = event.partial_id, event.patch
        if patch.done is True:
            self._done.add(partial_id)
        if isinstance(patch.text_delta, UnsetType):
            return True
        known = self._texts.get(partial_id, "")
        if partial_id in self._fresh:
            self._texts[partial_id] = known + patch.text_delta
            return True
        # The first delta after a subscription is the whole text so far.
        self._fresh.add(partial_id)
        self._texts[partial_id] = patch.text_delta
        if known and patch.text_delta.startswith(known):
            patch.text_delta = patch.text_delta[len(known) :] or UNSET
        return patch.text_delta is not UNSET or any(
            field is not UNSET for field in (patch.done, patch.usage, patch.activity)
        )
