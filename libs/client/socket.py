"""A WebSocket of a client: subscribes its keys, renews itself, resumes each key where it was."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import aiohttp
import msgspec

from libs.protocol import PROTOCOL_TOO_OLD, WsEvent, read_ws_event
from libs.protocol.ws import WsAccountChange, WsConnected, WsError, WsSessionChange, WsSubscribed

from .errors import ApiError, ClientError, ConnectionLost
from .retry import Pauses
from .subscription import Gap, Subscription

HEARTBEAT_S = 20.0
ANSWER_TIMEOUT_S = 30.0

_TRY_AGAIN_LATER = 1013
_STATUS_BY_MESSAGE = {
    "Invalid CBOR request": 400,
    "Expected Subscribe action": 400,
    "Subscription key is not authorized": 400,
    "afterSeq must be a non-negative integer": 400,
    "Action timestamp is outside allowed window": 401,
    "Signer is not authorized for account": 401,
    "Agent not found": 404,
    "Session not found": 404,
    "Run not found": 404,
    "WebSocket account switch is not allowed": 403,
    "Too many subscriptions": 429,
}
_TOO_MANY_SUBSCRIPTIONS = "Too many subscriptions"


class SharedSocket:
    """Connects when the first key is subscribed, closes with the last.

    `sign` makes the bytes of a Subscribe. After `away_s` without a server the subscriptions end with ConnectionLost. A
    `firehose` is for the account key, which brings events of all keys, and for nothing else.
    """

    def __init__(
        self,
        url: str,
        session: Callable[[], aiohttp.ClientSession],
        sign: Callable[[Mapping[str, Any]], bytes],
        away_s: float,
        *,
        firehose: bool = False,
    ) -> None:
        self._firehose = firehose
        self._url = url
        self._session = session
        self._sign = sign
        self._away_s = away_s
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._unasked: asyncio.Queue[str] = asyncio.Queue()
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._on_socket: set[str] = set()
        self._gaps: set[str] = set()
        self._refusal: ClientError | None = None
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, key: str, after_seq: int | None) -> Subscription:
        """A new subscription; its iterator tells what becomes of it."""
        subscription = Subscription(key, after_seq, self._drop)
        self._subscriptions.setdefault(key, []).append(subscription)
        self._unasked.put_nowait(key)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"seed-agents socket {self._url}")
        return subscription

    async def close(self) -> None:
        """End all subscriptions and the socket."""
        for subscription in self._all():
            subscription.end(None)
        self._subscriptions.clear()
        await self._stop()

    async def _drop(self, subscription: Subscription) -> None:
        self._remove(subscription)
        if not self._subscriptions:
            await self._stop()

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _all(self) -> Iterator[Subscription]:
        for subscriptions in list(self._subscriptions.values()):
            yield from list(subscriptions)

    def _remove(self, subscription: Subscription) -> None:
        remaining = [s for s in self._subscriptions.get(subscription.key, []) if s is not subscription]
        if remaining:
            self._subscriptions[subscription.key] = remaining
        else:
            self._subscriptions.pop(subscription.key, None)

    def _end(self, key: str, error: ClientError) -> None:
        for subscription in self._subscriptions.pop(key, []):
            subscription.end(error)

    async def _run(self) -> None:
        pauses = Pauses()
        away_since = time.monotonic()
        while self._subscriptions:
            failure: ClientError = ConnectionLost(f"{self._url}: the connection ended")
            pause = 0.0
            try:
                # No limit on a frame: an event may hold any document.
                async with self._session().ws_connect(self._url, heartbeat=HEARTBEAT_S, max_msg_size=0) as ws:
                    if await self._serve(ws):
                        pauses, away_since = Pauses(), time.monotonic()
                    if ws.close_code == _TRY_AGAIN_LATER:
                        pause = 1.0
            except (aiohttp.ClientError, OSError, TimeoutError) as e:
                failure = ConnectionLost(f"{self._url}: {e or type(e).__name__}")
            if time.monotonic() - away_since > self._away_s:
                for key in list(self._subscriptions):
                    self._end(key, self._refusal or failure)
                return
            if self._subscriptions:
                await asyncio.sleep(max(pause, pauses.next()))

    async def _serve(self, ws: aiohttp.ClientWebSocketResponse) -> bool:
        """Ask for every key, pass on what comes; returns, when the socket ended, whether it ever served a key."""
        self._unasked = asyncio.Queue()
        self._on_socket.clear()
        self._gaps.clear()
        self._refusal = None
        for key in self._subscriptions:
            self._unasked.put_nowait(key)
        asking = asyncio.create_task(self._ask_for_keys(ws))
        try:
            async for message in ws:
                if message.type is aiohttp.WSMsgType.TEXT:
                    await self._take(message.data)
                if asking.done():
                    break
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError, aiohttp.ClientError, TimeoutError):
                await asking
            self._asked.clear()
        return bool(self._on_socket)

    async def _ask_for_keys(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        # One at a time: an error event names no key, so it must belong to the only frame without an answer.
        while True:
            key = await self._unasked.get()
            subscriptions = self._subscriptions.get(key)
            if not subscriptions:
                continue
            action: dict[str, Any] = {"_": "Subscribe", "key": key}
            if after := min(s.resume_after for s in subscriptions):
                action["afterSeq"] = after
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._asked = {key: answer}
            try:
                await ws.send_bytes(self._sign(action))
                # Not wait_for: Python 3.11's swallows a cancellation that meets the answer.
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await answer
            except ApiError as e:
                if e.message == _TOO_MANY_SUBSCRIPTIONS and self._on_socket - self._subscriptions.keys():
                    # Keys that nobody reads any more still count: a new socket asks only for the others.
                    await ws.close()
                    return
                self._end(key, e)
            except TimeoutError:
                await ws.close()
                return
            finally:
                self._asked = {}
            if not self._subscriptions:
                await ws.close()
                return

    async def _take(self, frame: str) -> None:
        try:
            event = read_ws_event(frame)
        except (msgspec.DecodeError, msgspec.ValidationError):
            # A newer server may widen an event; durable ones are then missed and found by GetSession.
            return
        if event is None or isinstance(event, WsConnected):
            return
        if isinstance(event, WsError):
            self._refused(event)
            return
        if isinstance(event, WsSubscribed):
            self._on_socket.add(event.key)
            self._gaps.discard(event.key)
            if (answer := self._asked.get(event.key)) is not None and not answer.done():
                answer.set_result(None)
        for subscription in self._audience(event):
            try:
                await subscription.feed(event)
            except Gap:
                if event.key not in self._gaps:
                    self._gaps.add(event.key)
                    self._unasked.put_nowait(event.key)

    def _audience(self, event: WsEvent) -> list[Subscription]:
        """Whom an event is for: its key may be another than the one that was subscribed (websocket.md, section 5)."""
        if self._firehose and not isinstance(event, WsSubscribed):
            return list(self._all())
        assert not isinstance(event, WsConnected | WsError)
        audience = list(self._subscriptions.get(event.key, []))
        if isinstance(event, WsSessionChange | WsAccountChange) and isinstance(event.value.agent_id, str):
            audience += self._subscriptions.get(f"agents/{event.value.agent_id}", [])
        return audience

    def _refused(self, event: WsError) -> None:
        code = event.code if isinstance(event.code, str) else None
        status = _status(event.message, code)
        # Anything else ("Too many sockets", a service away) is a matter of the moment: the socket is renewed.
        error = ApiError(status or 503, event.message, code)
        self._refusal = error
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(error if status else TimeoutError(event.message))


def _status(message: str, code: str | None) -> int | None:
    if code == PROTOCOL_TOO_OLD:
        return 426
    if message.startswith("Invalid "):
        return _STATUS_BY_MESSAGE.get(message, 401)
    return _STATUS_BY_MESSAGE.get(message)
