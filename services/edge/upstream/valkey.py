"""Valkey (or Redis): the replay window, the buckets of the rates, and the text of blocks in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError

from services.edge.domain.rates import Spent
from services.edge.domain.replay import StoreAway

_FAILURES = (RedisError, OSError, TimeoutError)
_TIMEOUT_S = 2.0
_CONNECTIONS = 16

# A mark is only deleted by who set it: after a stall it may have expired and belong to another edge.
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

# Token buckets as hashes of what is left and when (server's clock, ms). ARGV: per second, burst, spent, for each key.
# They end when they would be full; a debt is at most one burst.
_SPEND = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local left = {}
for i, key in ipairs(KEYS) do
  local rate, burst, spent = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local known = redis.call('HMGET', key, 'left', 'at')
  local n = tonumber(known[1]) or burst
  n = math.min(burst, n + math.max(0, now - (tonumber(known[2]) or now)) * rate / 1000)
  n = math.max(-burst, n - spent)
  redis.call('HSET', key, 'left', n, 'at', now)
  redis.call('PEXPIRE', key, math.ceil((burst - n) / rate * 1000) + 1000)
  left[i] = tostring(n)
end
return left
"""
_BUCKET = "seed:rate:"

PARTIAL_KEY = "seed:partial:{session}"
"""HASH of partial id to text so far, UTF-8; the runs worker writes it before it publishes the delta."""


class Valkey:
    """One pool of connections. Every method raises StoreAway when the server cannot be reached in time."""

    def __init__(self, url: str) -> None:
        self._pool = redis.asyncio.ConnectionPool.from_url(
            url,
            socket_connect_timeout=_TIMEOUT_S,
            health_check_interval=0,
            retry=Retry(NoBackoff(), 1),
            max_connections=_CONNECTIONS,
        )
        self._redis: Any = redis.asyncio.Redis.from_pool(self._pool)
        # A burst waits for a connection instead of failing: more of them would not make Valkey faster. The library's
        # own waiting and timeouts cost a lock and a task a command.
        self._free = asyncio.Semaphore(_CONNECTIONS)

    async def _run(self, command: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._free:
                return await command(*arguments, **options)
        except _FAILURES as e:
            raise StoreAway from e

    async def _command(self, *command: Any) -> Any:
        """One command without what the library's client puts around its connections: this is in every request's way."""
        for attempt in range(2):
            connection = await self._pool.get_connection()
            try:
                await connection.send_command(*command)
                return await connection.read_response()
            except ConnectionLost:
                await connection.disconnect()
                if attempt:
                    raise
            finally:
                await self._pool.release(connection)
        return None

    async def claim(self, key: str, mark: bytes, ttl_ms: int) -> bytes | None:
        """Set `key` to `mark` when nobody has; returns what was there, None when the claim is ours."""
        found = await self._run(self._command, "SET", key, mark, "NX", "GET", "PX", ttl_ms)
        # Sent twice, since the first answer was lost with its connection, it finds itself.
        return None if found == mark else found

    async def extend(self, key: str, ttl_ms: int) -> None:
        """Let `key` live `ttl_ms` milliseconds from now."""
        await self._run(self._redis.pexpire, key, ttl_ms)

    async def put(self, key: str, value: bytes, ttl_ms: int) -> None:
        """Set `key` for `ttl_ms` milliseconds."""
        await self._run(self._command, "SET", key, value, "PX", ttl_ms)

    async def release(self, key: str, mark: bytes) -> None:
        """Delete `key` when it still holds `mark`."""
        await self._run(self._redis.eval, _RELEASE, 1, key, mark)

    async def spend(self, spent: Sequence[Spent]) -> list[float]:
        """Take from shared buckets; returns what is in them then, below zero for a debt."""
        keys = [_BUCKET + one.key for one in spent]
        values = [value for one in spent for value in (one.rate.per_second, one.rate.burst, one.count)]
        return [float(left) for left in await self._run(self._redis.eval, _SPEND, len(keys), *keys, *values)]

    async def partials(self, session_id: str) -> dict[str, str]:
        """Text so far of each block in flight of a session, by partial id."""
        found = await self._run(self._redis.hgetall, PARTIAL_KEY.format(session=session_id))
        return {key.decode(): text.decode("utf-8", "replace") for key, text in found.items()}

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()
