"""A NATS connection that is always on its way back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.errors import SlowConsumerError

from libs import telemetry

log = telemetry.get_logger("bus")

OnMessage = Callable[[str, bytes], Awaitable[None] | None]

WAITING_BYTES = 64 * 1024 * 1024
"""Most bytes of messages that wait for a slow server; beyond, publish() returns False."""
_UNHANDLED_BYTES = 128 * 1024 * 1024
_UNHANDLED_MESSAGES = 512 * 1024
_CLOSE_S = 2.0
_LOOK_S = 5.0
_GIVE_UP_S = 30.0


class Subscription:
    """One subscription; unsubscribe() ends it."""

    def __init__(self, bus: Bus, subject: str, handler: OnMessage) -> None:
        self._bus, self.subject, self._handler = bus, subject, handler
        self._live: Any = None
        self._ended = False

    async def _start(self, nc: Any) -> None:
        handler = self._handler

        async def on(msg: Msg) -> None:
            try:
                result = handler(msg.subject, msg.data)
                if result is not None:
                    await result
            except asyncio.CancelledError as e:
                # Raised by what the handler awaited, it would end the client's loop of this subscription.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                log.error("message handler failed", error=type(e).__name__, exc_info=e)
            except Exception as e:
                log.error("message handler failed", error=type(e).__name__, exc_info=e)

        if self._ended:
            return
        self._live = await nc.subscribe(
            self.subject, cb=on, pending_msgs_limit=_UNHANDLED_MESSAGES, pending_bytes_limit=_UNHANDLED_BYTES
        )
        if self._ended:
            await self._stop()

    async def _stop(self) -> None:
        with contextlib.suppress(Exception):
            await self._live.unsubscribe()

    async def unsubscribe(self) -> None:
        """Stop listening; messages that have arrived but are not handled yet are dropped."""
        self._ended = True
        self._bus._forget(self)
        if self._live is not None:
            await self._stop()


class Bus:
    """Publishes and listens; connects in the background and never gives up.

    While NATS is away publish() returns False and nothing arrives; after it is back the subscriptions go on and
    `on_restored` callbacks run, so that readers can fetch what they missed. They also run when a subscription's
    handler was so slow that messages had to be dropped (128 MiB or 524,288 messages unhandled).

    Messages of one subscription are handled one after the other, in the order in which they came.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name
        self._nc: Any = None
        self._tasks: list[asyncio.Task[None]] = []
        self._subscriptions: list[Subscription] = []
        self._restored: list[Callable[[], Awaitable[None]]] = []
        self._ready = asyncio.Event()
        self._missed = asyncio.Event()
        self._outgoing: deque[tuple[str, bytes] | asyncio.Future[None]] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._flushes: set[asyncio.Task[bool]] = set()
        self._away_noted = False
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether a server is connected now."""
        return self._nc is not None and self._nc.is_connected

    def on_restored(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Run `callback` each time messages may have been missed: the connection is back, or some were dropped.

        Callbacks run one after the other in a task of the bus.
        """
        self._restored.append(callback)

    async def start(self, *, patience_s: float = 5.0) -> None:
        """Begin connecting; waits at most `patience_s` seconds for the first connection, the rest goes on behind."""
        for part, name in ((self._stay_connected, "bus"), (self._pump, "bus-pump"), (self._restore, "bus-restore")):
            self._tasks.append(asyncio.create_task(part(), name=name))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), patience_s)
            return
        log.warning("bus is not reachable yet")
        self._ready.set()  # from here on, a connection is one that is back

    async def _stay_connected(self) -> None:
        # The client reconnects by itself when a connection breaks, but closes for good when the server says why
        # (slow consumer, authorization, shutdown). Then a new client takes over all subscriptions.
        while True:
            ended = asyncio.Event()
            try:
                nc = self._nc = await self._connect(ended)
                try:
                    for subscription in list(self._subscriptions):
                        await subscription._start(nc)
                    if self._ready.is_set():
                        await self._on_back()
                    self._ready.set()
                    await self._until_given_up(ended)
                finally:
                    await _close(nc)
            except Exception as e:  # noqa: BLE001 - any failure to connect is tried again
                log.warning("bus is not reachable", error=type(e).__name__)
            await asyncio.sleep(0.25)

    async def _connect(self, ended: asyncio.Event) -> Any:
        async def on_closed() -> None:
            ended.set()

        return await nats.connect(
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
            closed_cb=on_closed,
        )

    async def _until_given_up(self, ended: asyncio.Event) -> None:
        """Return when the client has closed, or has not come back for so long that it may have stopped trying."""
        away_s = 0.0
        while not ended.is_set() and away_s < _GIVE_UP_S:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _LOOK_S)
            away_s = 0.0 if self.connected else away_s + _LOOK_S

    async def _on_error(self, error: Exception) -> None:
        # While the server is away, every try to connect reports: one line is enough.
        if self.connected or not self._away_noted:
            log.warning("bus error", error=type(error).__name__)
        self._away_noted = not self.connected
        if isinstance(error, SlowConsumerError):
            self._missed.set()

    async def _on_lost(self) -> None:
        log.warning("bus connection lost")

    async def _on_back(self) -> None:
        log.info("bus connection is back")
        self._away_noted = False
        self._missed.set()

    async def _restore(self) -> None:
        while True:
            await self._missed.wait()
            self._missed.clear()
            for callback in list(self._restored):
                try:
                    await callback()
                except Exception as e:
                    log.error("restore callback failed", error=type(e).__name__, exc_info=e)

    def publish(self, subject: str, body: bytes) -> bool:
        """Send a message; False when not connected, or when too much waits to be sent. Never waits."""
        if self._closed or not self.connected or self._waiting_bytes > WAITING_BYTES:
            return False
        self._waiting_bytes += len(body)
        self._outgoing.append((subject, body))
        self._wake.set()
        return True

    async def _pump(self) -> None:
        # The client's publish is a coroutine; one task runs it so that publish() never waits and order is kept.
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            while self._outgoing and not self._closed:
                item = self._outgoing.popleft()
                if isinstance(item, asyncio.Future):
                    if not item.done():
                        item.set_result(None)
                    continue
                subject, body = item
                self._waiting_bytes -= len(body)
                try:
                    await self._nc.publish(subject, body)
                except Exception as e:  # noqa: BLE001 - lost with the connection; readers notice the gap
                    log.warning("message not sent", error=type(e).__name__)

    async def subscribe(self, subject: str, handler: OnMessage) -> Subscription:
        """Listen on `subject` (wildcards allowed) until unsubscribe(); in effect at the server after flush().

        `handler(subject, body)` may be a coroutine function; what it raises is logged.
        """
        subscription = Subscription(self, subject, handler)
        self._subscriptions.append(subscription)
        if self._nc is not None and not self._nc.is_closed:
            await subscription._start(self._nc)
        return subscription

    def _forget(self, subscription: Subscription) -> None:
        with contextlib.suppress(ValueError):
            self._subscriptions.remove(subscription)

    async def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until the server has handled all sent so far; False when it does not answer in time."""
        if not self.connected:
            return False
        # In a task that is left alone: a PONG that comes after its waiter has been canceled kills the client's reader.
        task = asyncio.create_task(self._flush(), name="bus-flush")
        self._flushes.add(task)
        task.add_done_callback(self._flushes.discard)
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        return bool(done) and task.result()

    async def _flush(self) -> bool:
        handed_over = asyncio.get_running_loop().create_future()
        self._outgoing.append(handed_over)
        self._wake.set()
        try:
            await handed_over
            await self._nc.flush(timeout=60)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - not connected any more: callers fetch instead
            return False
        return True

    async def close(self) -> None:
        """Send what is pending, as far as the server takes it within two seconds, and disconnect."""
        await self.flush(_CLOSE_S)
        self._closed = True
        # Ending, the first of them closes the client. Asked again, since the client swallows some cancellations.
        running = {*self._tasks, *self._flushes}
        for patience_s in (_CLOSE_S + 1, 1, 1):
            for task in running:
                task.cancel()
            if running:
                _, running = await asyncio.wait(running, timeout=patience_s)


async def _close(nc: Any) -> None:
    """Close a client, within a time limit: it waits for its socket to drain."""
    closing = asyncio.create_task(nc.close(), name="bus-close")
    done, _ = await asyncio.wait({closing}, timeout=_CLOSE_S)
    if not done:
        closing.cancel()
    elif (error := closing.exception()) is not None:
        log.warning("bus not closed cleanly", error=type(error).__name__)
