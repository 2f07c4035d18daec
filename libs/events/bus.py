"""A NATS connection that is always on its way back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import nats
from nats.aio.msg import Msg

from libs import telemetry

log = telemetry.get_logger("bus")

OnMessage = Callable[[str, bytes], Awaitable[None] | None]


class Subscription:
    """One subscription; unsubscribe() ends it."""

    def __init__(self, bus: Bus, subject: str, handler: OnMessage) -> None:
        self._bus, self.subject, self._handler = bus, subject, handler
        self._live: Any = None

    async def _start(self, nc: Any) -> None:
        handler = self._handler

        async def on(msg: Msg) -> None:
            try:
                result = handler(msg.subject, msg.data)
                if result is not None:
                    await result
            except Exception as e:  # noqa: BLE001 - one bad message must not end the subscription
                log.error("message handler failed", subject=self.subject, error=type(e).__name__, exc_info=e)

        self._live = await nc.subscribe(self.subject, cb=on)

    async def unsubscribe(self) -> None:
        """Stop listening."""
        self._bus._forget(self)
        if self._live is not None:
            with contextlib.suppress(Exception):
                await self._live.unsubscribe()


class Bus:
    """Publishes and listens; connects in the background and never gives up.

    While NATS is away publish() returns False and nothing arrives; after it is back the subscriptions go on and
    `on_restored` callbacks run, so that readers can fetch what they missed.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name
        self._nc: Any = None
        self._task: asyncio.Task[None] | None = None
        self._subscriptions: list[Subscription] = []
        self._restored: list[Callable[[], Awaitable[None]]] = []
        self._ready = asyncio.Event()
        self._outgoing: deque[tuple[str, bytes]] = deque()
        self._wake = asyncio.Event()
        self._pump_task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether a server is connected now."""
        return self._nc is not None and self._nc.is_connected

    def on_restored(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Run `callback` each time the connection is back after it was lost."""
        self._restored.append(callback)

    async def start(self, *, patience_s: float = 5.0) -> None:
        """Begin connecting; waits at most `patience_s` seconds for the first connection, the rest goes on behind."""
        self._task = asyncio.create_task(self._connect(), name="bus")
        self._pump_task = asyncio.create_task(self._pump(), name="bus-pump")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), patience_s)

    async def _connect(self) -> None:
        while True:
            try:
                self._nc = await nats.connect(
                    self._url,
                    name=self._name,
                    connect_timeout=2,
                    allow_reconnect=True,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.25,
                    ping_interval=5,
                    max_outstanding_pings=2,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_lost,
                    reconnected_cb=self._on_back,
                )
                break
            except Exception as e:  # noqa: BLE001 - any failure to connect is tried again
                log.warning("bus is not reachable", error=type(e).__name__)
                await asyncio.sleep(0.5)
        for subscription in list(self._subscriptions):
            await subscription._start(self._nc)
        self._ready.set()

    async def _on_error(self, error: Exception) -> None:
        log.warning("bus error", error=type(error).__name__)

    async def _on_lost(self) -> None:
        log.warning("bus connection lost")

    async def _on_back(self) -> None:
        log.info("bus connection is back")
        for callback in self._restored:
            try:
                await callback()
            except Exception as e:  # noqa: BLE001 - the other callbacks must run
                log.error("restore callback failed", error=type(e).__name__, exc_info=e)

    def publish(self, subject: str, body: bytes) -> bool:
        """Send a message; False when not connected. Never waits."""
        if not self.connected:
            return False
        self._outgoing.append((subject, body))
        self._wake.set()
        return True

    async def _pump(self) -> None:
        # The client's publish is a coroutine; one task runs it so that publish() never waits and order is kept.
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outgoing:
                subject, body = self._outgoing.popleft()
                try:
                    await self._nc.publish(subject, body)
                except Exception as e:  # noqa: BLE001 - lost with the connection; readers notice the gap
                    log.warning("message not sent", error=type(e).__name__)

    async def subscribe(self, subject: str, handler: OnMessage) -> Subscription:
        """Listen on `subject` (wildcards allowed) until unsubscribe(); in effect at the server after flush()."""
        subscription = Subscription(self, subject, handler)
        self._subscriptions.append(subscription)
        if self._nc is not None:
            await subscription._start(self._nc)
        return subscription

    def _forget(self, subscription: Subscription) -> None:
        with contextlib.suppress(ValueError):
            self._subscriptions.remove(subscription)

    async def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until the server has handled all sent so far; False when it does not answer in time."""
        if not self.connected:
            return False
        try:
            await self._nc.flush(timeout=timeout_s)
        except Exception:  # noqa: BLE001 - not connected any more, or too slow: the caller falls back to fetching
            return False
        return True

    async def close(self) -> None:
        """Send what is pending and disconnect."""
        if self._task is not None:
            self._task.cancel()
        for _ in range(1_000):
            if not (self.connected and self._outgoing):
                break
            await asyncio.sleep(0)
        if self._pump_task is not None:
            self._pump_task.cancel()
        if self._nc is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._nc.drain(), 2)
            with contextlib.suppress(Exception):
                await self._nc.close()
