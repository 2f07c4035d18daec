"""The replay window: a captured envelope cannot act twice (envelope.md, section 3, step 13).

An accepted mutating signature is remembered for as long as its timestamp is acceptable. While the first request runs,
a mark stands under the signature's hash; afterwards its answer does. The store may lose everything at any moment; while
it is away nothing mutating is let in.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from libs import signatures, telemetry
from libs.errors import Conflict, Unavailable

log = telemetry.get_logger("replay")

MARK_MS = 10_000
"""How long a mark outlives the edge that set it. What acts is recorded by its owner too, so this may be short."""
_RENEW_S = MARK_MS / 3 / 1000
_SECOND_LOOK_S = 0.05
"""How long after a mark is seen it is looked for again: an answer that has just left another edge is kept by then."""
_SLACK_MS = 1_000
_COMPRESS_BYTES = 4_096

_RUNNING, _DONE = b"r", b"d"
_PLAIN, _COMPRESSED = b"p", b"z"
OURS = frozenset({500, 503})
"""Statuses that say nothing about the request: the same bytes may try again."""


class StoreAway(Exception):
    """The store cannot be reached."""


class ReplayStore(Protocol):
    """Where marks and answers are kept. Every method may raise StoreAway."""

    async def claim(self, key: str, mark: bytes, ttl_ms: int) -> bytes | None:
        """Set `key` to `mark` when it is free, for `ttl_ms`; returns what was there."""
        ...

    async def extend(self, key: str, ttl_ms: int) -> None:
        """Let `key` live `ttl_ms` from now."""
        ...

    async def put(self, key: str, value: bytes, ttl_ms: int) -> None:
        """Set `key` for `ttl_ms`."""
        ...

    async def release(self, key: str, mark: bytes) -> None:
        """Delete `key` when it still holds `mark`."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer of the action API. `retry_after_s` is the Retry-After header, 0 for none."""

    status: int
    body: bytes
    retry_after_s: int = 0


class ReplayWindow:
    """Runs each mutating request at most once. `now_ms` is the server's clock, `skew_ms` the window either way.

    `renew()` must run beside it: it keeps the marks of long requests alive. `close()` keeps what is still to be kept.
    """

    def __init__(self, store: ReplayStore, *, now_ms: Callable[[], float], skew_ms: int) -> None:
        self._store, self._now_ms, self._skew_ms = store, now_ms, skew_ms
        self._running: set[str] = set()
        self._settling: dict[str, asyncio.Task[None]] = {}

    async def run(self, signature: bytes, ts: float, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of `work`, or the one that the same signature got before.

        Raises Conflict while the first request with this signature runs, Unavailable while the store is away.
        """
        key = "seed:replay:" + hashlib.sha256(signature).hexdigest()
        mark = _RUNNING + os.urandom(12)
        if (settling := self._settling.get(key)) is not None:
            await asyncio.wait([settling])
        found = await self._claim(key, mark)
        if found is not None and found[:1] == _RUNNING:
            await asyncio.sleep(_SECOND_LOOK_S)
            found = await self._claim(key, mark)
        if found is not None:
            if found[:1] == _RUNNING:
                raise Conflict("This request is still being handled", retry_after_s=1)
            return _unpack(signature, found)
        self._running.add(key)
        try:
            answer = await work()
        except BaseException:
            with contextlib.suppress(StoreAway):
                await self._store.release(key, mark)
            raise
        finally:
            self._running.discard(key)
        # The answer need not wait until it is kept: who repeats the request meanwhile finds the mark, and its owner has
        # recorded the signature.
        task = asyncio.create_task(self._settle(key, signature, mark, ts, answer), name="keep an answer")
        self._settling[key] = task
        task.add_done_callback(lambda _: self._settled(key, task))
        return answer

    async def close(self) -> None:
        """Wait until the answers that were given are kept."""
        if self._settling:
            await asyncio.wait(list(self._settling.values()))

    async def _claim(self, key: str, mark: bytes) -> bytes | None:
        try:
            return await self._store.claim(key, mark, MARK_MS)
        except StoreAway:
            raise Unavailable("The replay window is not available, try again", retry_after_s=1) from None

    def _settled(self, key: str, task: asyncio.Task[None]) -> None:
        if self._settling.get(key) is task:
            del self._settling[key]

    def refused_from(self, ts: float) -> int:
        """When a request of `ts` is refused for its age by every edge: epoch milliseconds."""
        return int(ts + self._skew_ms) + _SLACK_MS

    async def renew(self) -> None:
        """Keep the marks of running requests alive; never returns."""
        while True:
            await asyncio.sleep(_RENEW_S)
            for key in list(self._running):
                with contextlib.suppress(StoreAway):
                    await self._store.extend(key, MARK_MS)

    async def _settle(self, key: str, signature: bytes, mark: bytes, ts: float, answer: Answer) -> None:
        try:
            if answer.status in OURS:
                await self._store.release(key, mark)
            else:
                # The key outlives the last moment at which the signature would be accepted.
                left = max(_SLACK_MS, self.refused_from(ts) - int(self._now_ms()))
                await self._store.put(key, _pack(signature, answer), left)
        except StoreAway:
            # The effect stands and the caller gets its answer; the mark, if it survived, refuses repeats for a while.
            log.warning("answer not remembered")


def _pack(signature: bytes, answer: Answer) -> bytes:
    """For the store, which does not read it: what is in an answer may be for its caller alone."""
    status = answer.status.to_bytes(2, "big")
    small = len(answer.body) <= _COMPRESS_BYTES
    body = _PLAIN + status + answer.body if small else _COMPRESSED + status + zlib.compress(answer.body, 1)
    return _DONE + signatures.sealed(signatures.key_of(signature), body)


def _unpack(signature: bytes, value: bytes) -> Answer:
    packed = signatures.unsealed(signatures.key_of(signature), value[1:])
    if packed is None:
        # Nothing that an edge of ours has kept.
        raise Conflict("This signed request has already been accepted")
    body = packed[3:]
    return Answer(int.from_bytes(packed[1:3], "big"), zlib.decompress(body) if packed[:1] == _COMPRESSED else body)
