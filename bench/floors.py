"""The floors: the same hops with nothing in them, each in a process of its own like the services.

`edge`: aiohttp that reads the body and passes it on. `service`: grpc.aio that runs the SQL. What ours costs beyond is
for decoding, verifying, authorizing, encoding and ordering.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import asyncpg
import grpc
import grpc.aio
import uvloop
from aiohttp import web

from .load import percentile

_METHODS = ("Echo", "ListAgents", "GetSession", "Turn")
_SERVICE = "bench.Floor"
_DEFINITION_BYTES = 420
_EVENT_BYTES = 380

SCHEMA = """
DROP SCHEMA IF EXISTS bench_floor CASCADE;
CREATE SCHEMA bench_floor;
CREATE TABLE bench_floor.agents (
  id text PRIMARY KEY, account text NOT NULL, definition bytea NOT NULL, status text NOT NULL,
  public_read boolean NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL);
CREATE INDEX ON bench_floor.agents (account);
CREATE TABLE bench_floor.sessions (
  id text PRIMARY KEY, agent_id text NOT NULL, title text, status text NOT NULL, head bigint NOT NULL,
  created_at bigint NOT NULL, updated_at bigint NOT NULL);
CREATE TABLE bench_floor.events (
  session_id text NOT NULL, seq bigint NOT NULL, id text NOT NULL, payload bytea NOT NULL, created_at bigint NOT NULL,
  PRIMARY KEY (session_id, seq));
"""
_LIST_AGENTS = "SELECT * FROM bench_floor.agents WHERE account = $1 ORDER BY updated_at DESC, id DESC"
_GET_SESSION = "SELECT * FROM bench_floor.sessions WHERE id = $1"
_GET_EVENTS = "SELECT seq, id, payload, created_at FROM bench_floor.events WHERE session_id = $1 ORDER BY seq"
_BUMP = "UPDATE bench_floor.sessions SET head = head + 1, updated_at = $2 WHERE id = $1 RETURNING head"
_APPEND = "INSERT INTO bench_floor.events VALUES ($1, $2, $3, $4, $5)"


async def fill(dsn: str, *, agents: int, events: int, sessions: int) -> None:
    """Make the tables: an account with `agents` agents, a session of `events` events, `sessions` to talk in."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(SCHEMA)
        rows = [(f"agent-{i}", "account", bytes(_DEFINITION_BYTES), "idle", False, i, i) for i in range(agents)]
        await connection.executemany("INSERT INTO bench_floor.agents VALUES ($1, $2, $3, $4, $5, $6, $7)", rows)
        names = ["read", *(f"session-{i}" for i in range(sessions))]
        rows = [(name, "agent-0", "title", "idle", events if name == "read" else 0, 1, 1) for name in names]
        await connection.executemany("INSERT INTO bench_floor.sessions VALUES ($1, $2, $3, $4, $5, $6, $7)", rows)
        rows = [("read", i + 1, f"event-{i}", bytes(_EVENT_BYTES), i) for i in range(events)]
        await connection.executemany(_APPEND, rows)
        await connection.execute("ANALYZE bench_floor.agents, bench_floor.sessions, bench_floor.events")
    finally:
        await connection.close()


class Sql:
    """The statements, of the shape and size that the services run. `provider` is the instant model's URL."""

    def __init__(self, pool: asyncpg.Pool, provider: str = "", http: aiohttp.ClientSession | None = None) -> None:
        self._pool = pool
        self._provider = provider
        self._http = http

    async def list_agents(self, _request: bytes = b"") -> bytes:
        rows = await self._pool.fetch(_LIST_AGENTS, "account")
        return b"".join(row["definition"] for row in rows)

    async def get_session(self, _request: bytes = b"") -> bytes:
        await self._pool.fetchrow(_GET_SESSION, "read")
        rows = await self._pool.fetch(_GET_EVENTS, "read")
        return b"".join(row["payload"] for row in rows)

    async def append(self, session: str) -> None:
        """One durable event, as one committed transaction."""
        async with self._pool.acquire() as connection, connection.transaction():
            seq = await connection.fetchval(_BUMP, session, time.time_ns())
            await connection.execute(_APPEND, session, seq, f"{session}-{seq}", bytes(_EVENT_BYTES), time.time_ns())

    async def turn(self, request: bytes) -> bytes:
        """The least a turn can be: log the question, ask the model, log the answer."""
        session = request.decode()
        await self.append(session)
        assert self._http is not None
        async with self._http.post(f"{self._provider}/chat/completions", json={"stream": True}) as answer:
            await answer.read()
        await self.append(session)
        return request


async def _serve_service(dsn: str, provider: str) -> None:
    pool = await asyncpg.create_pool(dsn, min_size=8, max_size=8)
    async with aiohttp.ClientSession() as http:
        sql = Sql(pool, provider, http)
        methods: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "Echo": _echo,
            "ListAgents": sql.list_agents,
            "GetSession": sql.get_session,
            "Turn": sql.turn,
        }
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, _handlers(methods)),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        await server.wait_for_termination()


async def _echo(request: bytes) -> bytes:
    return request


def _handlers(methods: dict[str, Callable[[bytes], Awaitable[bytes]]]) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    def handler(method: Callable[[bytes], Awaitable[bytes]]) -> Any:
        async def call(request: bytes, _context: Any) -> bytes:
            return await method(request)

        return grpc.unary_unary_rpc_method_handler(call)

    return {name: handler(method) for name, method in methods.items()}


async def _serve_edge(service: str) -> None:
    channel = grpc.aio.insecure_channel(service)
    calls = {f"/{name}": channel.unary_unary(f"/{_SERVICE}/{name}") for name in _METHODS}

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        call = calls.get(request.path)
        answer = body if call is None else await call(body, timeout=30)
        return web.Response(body=answer, content_type="application/cbor")

    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


async def _measure_grpc(service: str, clients: int, seconds: float) -> dict[str, float]:
    async with grpc.aio.insecure_channel(service) as channel:
        call = channel.unary_unary(f"/{_SERVICE}/Echo")
        body = bytes(300)
        return await closed_loop(lambda: call(body), clients, seconds)


async def _measure_sql(dsn: str, statement: str, clients: int, seconds: float) -> dict[str, float]:
    pool = await asyncpg.create_pool(dsn, min_size=8, max_size=8)
    sql = Sql(pool)
    numbers = iter(range(1 << 62))
    work: dict[str, Callable[[], Awaitable[Any]]] = {
        "ListAgents": sql.list_agents,
        "GetSession": sql.get_session,
        "append": lambda: sql.append(f"session-{next(numbers) % clients}"),
    }
    try:
        return await closed_loop(work[statement], clients, seconds)
    finally:
        pool.terminate()


async def closed_loop(work: Callable[[], Awaitable[Any]], clients: int, seconds: float) -> dict[str, float]:
    """Run `work` over and over in `clients` tasks; rate a second and latencies in ms."""
    latencies: list[float] = []
    warm = time.monotonic() + 0.3
    end = warm + seconds

    async def one() -> None:
        while (started := time.monotonic()) < end:
            await work()
            if started >= warm:
                latencies.append((time.monotonic() - started) * 1000)

    await asyncio.gather(*(one() for _ in range(clients)))
    latencies.sort()
    return {
        "clients": clients,
        "per_second": len(latencies) / seconds,
        "p50": percentile(latencies, 0.5),
        "p95": percentile(latencies, 0.95),
        "p99": percentile(latencies, 0.99),
    }


class Floor:
    """A floor process, from outside: `port` when it serves, or its one line of JSON."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.floors", *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._line = self._process.stdout.readline().strip()
        if not self._line:
            raise RuntimeError(f"the floor {arguments[0]} did not start")

    @property
    def port(self) -> int:
        return int(self._line)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(*arguments: str) -> dict[str, float]:
    """Run a measurement in a process of its own."""
    floor = Floor(*arguments)
    floor.stop()
    return json.loads(floor._line)


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "edge":
        uvloop.run(_serve_edge(rest[0]))
    elif kind == "service":
        uvloop.run(_serve_service(rest[0], rest[1]))
    elif kind == "grpc":
        print(json.dumps(uvloop.run(_measure_grpc(rest[0], int(rest[1]), float(rest[2])))), flush=True)
    elif kind == "sql":
        print(json.dumps(uvloop.run(_measure_sql(rest[0], rest[1], int(rest[2]), float(rest[3])))), flush=True)
