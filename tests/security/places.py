"""Everything that a running system leaves anywhere, by place."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import nats
import redis.asyncio

from libs.stack import Stack
from libs.stack.layout import DATABASE_SERVICES

Places = dict[str, bytes]
"""What lies where."""

KEPT = {
    "table memory.tool_documents.document",
    "table memory.tool_documents.summary",
    "table sessions.agents.definition",
    "table sessions.continuations.link",
    "table sessions.session_events.payload",
    "table sessions.session_turns.error_message",
    "table sessions.session_turns.title",
    "table sessions.sessions.continued_from",
    "table sessions.sessions.continued_to",
    "table sessions.sessions.description",
    "table sessions.sessions.plan",
    "table sessions.sessions.title",
    "table runs.runs.error",
    "table runs.runs.output",
    "table runs.runs.plan",
    "table runs.runs.title",
    "table runs.runs.unmet_obligations",
}
"""Where conversations are kept, and what agents make in them."""


def logs(stack: Stack) -> Places:
    """The logs of all processes, the stores' included."""
    return {f"log {path.name}": path.read_bytes() for path in (stack.data_dir / "logs").iterdir()}


async def metrics(ports: range) -> Places:
    """What each process shows of itself."""

    def read(port: int) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return answer.read()

    return {f"metrics :{port}": await asyncio.to_thread(read, port) for port in ports}


def jetstream(stack: Stack) -> Places:
    """The files of NATS, without its configuration."""
    files = [path for path in (stack.data_dir / "nats").rglob("*") if path.is_file() and path.name != "server.conf"]
    return {f"nats {path.name}": path.read_bytes() for path in files}


@asynccontextmanager
async def bus(stack: Stack) -> AsyncIterator[Places]:
    """Every message that goes over NATS meanwhile, by the kind at the end of its subject."""
    heard: Places = {}

    async def take(message: Any) -> None:
        subject = message.subject.split(".")
        place = f"bus {'.'.join(part for part in subject if len(part) < 30)}"
        heard[place] = heard.get(place, b"") + message.subject.encode() + b"\n" + message.data + b"\n"

    connection = await nats.connect(stack.stores.nats_url)
    await connection.subscribe(">", cb=take)
    try:
        yield heard
    finally:
        await connection.drain()


async def valkey(stack: Stack) -> Places:
    """Every key with what it holds."""
    store: Any = redis.asyncio.Redis.from_url(stack.stores.redis_url)
    held: Places = {}
    async for key in store.scan_iter(count=1000):
        match await store.type(key):
            case b"string":
                data = await store.get(key) or b""
            case b"hash":
                data = b"\n".join(part for pair in (await store.hgetall(key)).items() for part in pair)
            case kind:
                raise AssertionError(f"{key} is a {kind}: say here how it is read")
        held[f"valkey {key.decode('utf-8', 'replace')}"] = data
    await store.aclose()
    return held


async def outboxes_empty(stack: Stack) -> bool:
    """Whether all news has been passed on: an outbox keeps nothing, but it holds what is on its way."""
    connection = await asyncpg.connect(stack.stores.database_url)
    try:
        waiting = [
            await connection.fetchval(f"select exists (select from {service}.outbox)") for service in DATABASE_SERVICES
        ]
    finally:
        await connection.close()
    return not any(waiting)


async def database(stack: Stack) -> Places:
    """Every column of every table of ours, all rows together."""
    connection = await asyncpg.connect(stack.stores.database_url)
    tables = await connection.fetch(
        "select table_schema, table_name from information_schema.tables where table_type = 'BASE TABLE' "
        "and table_schema not in ('pg_catalog', 'information_schema')"
    )
    held: Places = {}
    for table in tables:
        name = f"{table['table_schema']}.{table['table_name']}"
        rows = await connection.fetch(f"select * from {name}")
        for row in rows:
            for column, value in row.items():
                place = f"table {name}.{column}"
                data = value if isinstance(value, bytes) else str(value).encode()
                held[place] = held.get(place, b"") + data + b"\n"
    await connection.close()
    return held
