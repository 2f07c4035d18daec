"""Live progress of a turn: text deltas, activity, usage.

Partials go over NATS as they come: the first delta of a text block at once, the rest coalesced. The text so far is kept
in Valkey until the message is durable, so that whoever joins in mid-turn gets it; losing either costs nothing but that.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError
from seed.events.v1 import events_pb2

from libs import events, telemetry
from libs.events import Bus

log = telemetry.get_logger("partials")

FLUSH_S = 0.5
"""How long a durable event waits for the bus to have taken what was streamed before it."""
KEEP_S = 3600
"""How long text in flight is kept when nobody clears it."""
_REDIS_PAUSE_S = 5.0


def partial_key(session_id: str) -> str:
    """Hash of a session's text in flight: partial id to text so far."""
    return f"seed:partial:{session_id}"


class PartialStore:
    """Text in flight in Valkey. Best effort: while Valkey is away it does nothing."""

    def __init__(self, redis: Redis) -> None:
        self._redis, self._away_until = redis, 0.0

    async def put(self, session_id: str, partial_id: str, text: str) -> None:
        """Keep the text so far of a block."""
        key = partial_key(session_id)
        await self._try(lambda p: p.hset(key, partial_id, text).expire(key, KEEP_S))

    async def clear(self, session_id: str) -> None:
        """Forget the session's text in flight."""
        await self._try(lambda p: p.delete(partial_key(session_id)))

    async def ids(self, session_id: str) -> list[str]:
        """Partial ids that an earlier attempt left behind."""
        if time.monotonic() < self._away_until:
            return []
        try:
            found: Any = await self._redis.hkeys(partial_key(session_id))  # pyright: ignore[reportGeneralTypeIssues]
        except (RedisError, OSError, TimeoutError):
            return []
        return [k.decode() if isinstance(k, bytes) else k for k in found]

    async def _try(self, fill: Any) -> None:
        if time.monotonic() < self._away_until:
            return
        try:
            pipe = self._redis.pipeline(transaction=False)
            fill(pipe)
            await pipe.execute()
        except (RedisError, OSError, TimeoutError) as e:
            self._away_until = time.monotonic() + _REDIS_PAUSE_S
            log.warning("text in flight is not kept", error=type(e).__name__)


class PartialStream:
    """Partials of one turn."""

    def __init__(
        self,
        bus: Bus,
        store: PartialStore,
        *,
        account: str,
        agent_id: str,
        session_id: str,
        run_id: str,
        interval_s: float,
    ) -> None:
        self._bus, self._store, self._interval = bus, store, interval_s
        self._account, self._agent, self._session, self._run = account, agent_id, session_id, run_id
        self._partial = uuid.uuid4().hex
        self._text, self._pending = "", ""
        self._last = 0.0
        self._hurry = asyncio.Event()
        self._flusher: asyncio.Task[None] | None = None
        self._kept = False

    @property
    def text(self) -> str:
        """Text of the block so far, streamed or about to be."""
        return self._text + self._pending

    def activity(self, phase: str, *, usage: bytes = b"", more: Mapping[str, str] | None = None) -> None:
        """Tell what the turn does now: starting, responding, thinking, tool or finalizing."""
        self._send(activity=msgspec.json.encode({"phase": phase, **(more or {})}), usage=usage)

    def add(self, delta: str) -> None:
        """Stream the next piece of the block's text. Returns at once."""
        if not self._text and not self._pending:
            self.activity("responding")
        self._pending += delta
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush(), name="partials")

    async def _flush(self) -> None:
        if not self._text:
            # What has arrived with the first piece goes out with it.
            await asyncio.sleep(0)
        while self._pending:
            wait = self._last + self._interval - time.monotonic() if self._text else 0.0
            if wait > 0 and not self._hurry.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), wait)
            delta, self._pending = self._pending, ""
            offset = len(self._text)
            self._text += delta
            self._last = time.monotonic()
            # The end of a block need not be kept: its message becomes durable now.
            if not self._hurry.is_set():
                self._kept = True
                await self._store.put(self._session, self._partial, self._text)
            self._send(offset=offset, text_delta=delta)

    async def drain(self) -> None:
        """Send what is pending now."""
        if self._flusher is None:
            return
        self._hurry.set()
        try:
            # Not awaited itself: canceling the turn here would cancel the sending, and with it the text.
            await asyncio.wait([self._flusher])
        finally:
            self._hurry.clear()

    async def end_block(self) -> None:
        """Close the block: send what is pending, then `done`; the next text gets a partial id of its own."""
        await self.drain()
        self._send(done=True)
        self._partial, self._text = uuid.uuid4().hex, ""
        await self.settle()

    async def settle(self) -> None:
        """Wait until the bus has what was sent: durable events, over another connection, must not overtake it."""
        await self._bus.flush(FLUSH_S)

    async def clear(self) -> None:
        """The text is durable, or given up: forget what was kept of it."""
        if self._kept:
            self._kept = False
            await self._store.clear(self._session)

    async def clear_earlier(self) -> None:
        """Close the blocks that a dead attempt left open."""
        for partial_id in await self._store.ids(self._session):
            self._send(done=True, partial_id=partial_id)
        await self._store.clear(self._session)

    def _send(self, partial_id: str = "", **fields: Any) -> None:
        partial = events_pb2.SessionPartial(
            session_id=self._session, run_id=self._run, partial_id=partial_id or self._partial, **fields
        )
        self._bus.publish(*events.session_partial(self._account, self._agent, partial))
