"""What the tests of runs stand on: a clock, turns, a store, and waiting."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from seed.events.v1 import events_pb2
from seed.sessions.v1 import types_pb2

from libs.store import Database, Outbox, Row
from services.runs.store.endings import Ending
from services.runs.store.queue import Queue
from services.runs.store.tables import outbox as outbox_rows
from services.runs.store.trees import Trees
from services.runs.store.workers import Workers

OWNER = "zOwner"
AGENT = "agent-1"
INTERNAL_KEY = "k" * 64
LEASE_MS = 15_000
DONE = Ending("succeeded", assistant_event_id="e1")


class Clock:
    """Unix milliseconds that pass only when told."""

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def new_id() -> str:
    return str(uuid.uuid4())


def turn(session_id: str, *, run_id: str = "", behind: bool = False, **more: Any) -> types_pb2.TurnStart:
    """A turn as sessions hands it over."""
    fields = {"agent_id": AGENT, "owner": OWNER, "title": "Say hello", "origin": "user", **more}
    return types_pb2.TurnStart(run_id=run_id or new_id(), session_id=session_id, queued_behind=behind, **fields)


async def until(condition: Callable[[], Any], within_s: float = 8.0) -> Any:
    """What the condition gives once it is true; fails when it never is."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition never held"
        await asyncio.sleep(0.005)
    return value


@dataclass
class Store:
    """The runs of one database, with a clock that the test sets and everything that would be published."""

    db: Database
    clock: Clock
    published: list[tuple[str, bytes]] = field(default_factory=list)
    queue: Queue = field(init=False)
    trees: Trees = field(init=False)

    def __post_init__(self) -> None:
        outbox = Outbox(self.db, outbox_rows, self._publish)
        self.queue = Queue(self.db, outbox, lease_ms=LEASE_MS, now=self.clock)
        self.trees = Trees(self.db, outbox, self.clock)

    def _publish(self, subject: str, body: bytes) -> bool:
        self.published.append((subject, body))
        return True

    def told(self) -> list[tuple[str, str, int]]:
        """(run id, status, version) of every published change, in order."""
        changes = [events_pb2.Event.FromString(body).run_changed.run for _, body in self.published]
        return [(run.id, run.status, run.version) for run in changes]

    async def started(self, session_id: str = "", **more: Any) -> str:
        """Id of a queued run; time passes by a millisecond."""
        self.clock.ms += 1
        row, _ = await self.queue.start(turn(session_id or new_id(), **more), "")
        return row["id"]

    async def child(self, parent: str, session_id: str | None = None) -> str:
        """Id of a queued run below another one."""
        run_id = await self.started(session_id or new_id())
        await self.write(
            "UPDATE runs c SET parent_run_id = p.id, root_run_id = p.root_run_id, depth = p.depth + 1 "
            "FROM runs p WHERE p.id = $1 AND c.id = $2",
            parent,
            run_id,
        )
        return run_id

    async def row(self, run_id: str) -> Row:
        row = await self.trees.get(run_id)
        assert row is not None
        return row

    async def all(self) -> list[Row]:
        async with self.db.connection() as connection:
            return await connection.fetch("SELECT * FROM runs")

    async def status(self, run_id: str) -> str:
        return (await self.row(run_id))["status"]

    async def write(self, statement: str, *values: Any) -> None:
        """Bring rows into a state that no operation of this release leads to."""
        async with self.db.connection() as connection:
            await connection.execute(statement, *values)

    async def clear(self) -> None:
        await self.write("TRUNCATE runs, outbox, workers")
        await self.write("UPDATE dispatch_ring SET after = ''")
        self.published.clear()


async def working(store: Store, **more: Any) -> Workers:
    """A worker that has just been heard of."""
    workers = Workers(store.db, lease_ms=LEASE_MS, now=store.clock)
    fields = {"host": "h", "started_at": 1, "slots": 4, "held": 0, "draining": False, "stopping": False, **more}
    await workers.beat("w", **fields)
    return workers
