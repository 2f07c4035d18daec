"""Workers on real PostgreSQL, NATS and Valkey, with the real model gateway and a scripted provider."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from seed.events.v1 import events_pb2
from seed.sessions.v1 import types_pb2

from libs import events
from libs.events import Bus
from libs.rpc import Peer, TokenSigner
from libs.stack.scripted import ScriptedProvider
from libs.store import Database, Outbox, Row
from services.runs.providers import ModelGateway
from services.runs.server import OTHER_VERBS
from services.runs.store.family import Family
from services.runs.store.queue import Queue
from services.runs.store.tables import TERMINAL
from services.runs.store.tables import outbox as outbox_rows
from services.runs.store.trees import Trees
from services.runs.store.workers import Workers
from services.runs.verbs.build import build_verbs
from services.runs.verbs.searching import Searching
from services.runs.worker.answers import Answers
from services.runs.worker.log import SessionLog
from services.runs.worker.models import ModelResolver
from services.runs.worker.partials import PartialStore, PartialStream, partial_key
from services.runs.worker.titles import Titler
from services.runs.worker.tools import Limits
from services.runs.worker.turn import Parts
from services.runs.worker.worker import Pace, Worker
from tests.runs.fakes import Conversation, FakeSecrets, FakeSessions
from tests.runs.house import INTERNAL_KEY, until

INBOX = "seed.internal.v1.edge.test"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Running:
    """A worker at work. `stop()` asks it to end as SIGTERM does; `kill()` ends it where it stands."""

    worker: Worker
    stopping: asyncio.Event
    task: asyncio.Task[None]
    tasks: set[asyncio.Task[Any]]

    async def stop(self) -> None:
        self.stopping.set()
        await asyncio.wait_for(self.task, 15)

    async def kill(self) -> None:
        runs = {held.task for held in self.worker._held.values() if held.task is not None}
        doomed = {self.task, *self.tasks, *runs}
        for task in doomed:
            task.cancel()
        await asyncio.wait(doomed, timeout=5)


@dataclass
class Workshop:
    """Everything around the workers. `partials` and `settled` are what was heard over NATS, in order."""

    urls: dict[str, str]
    provider: ScriptedProvider
    sessions: FakeSessions
    secrets: FakeSecrets
    gateway: ModelGateway
    db: Database
    bus: Bus
    redis: Redis
    partials: list[events_pb2.SessionPartial] = field(default_factory=list)
    settled: list[types_pb2.TurnOutcome] = field(default_factory=list)
    _running: list[Running] = field(default_factory=list)
    _close: list[Callable[[], Any]] = field(default_factory=list)

    async def open(self) -> None:
        def heard(_: str, body: bytes) -> None:
            event = events_pb2.Event.FromString(body)
            if event.HasField("session_partial"):
                self.partials.append(event.session_partial)

        def told(_: str, body: bytes) -> None:
            self.settled.append(events_pb2.TurnSettled.FromString(body).outcome)

        await self.bus.subscribe("seed.v1.>", heard)
        await self.bus.subscribe(INBOX, told)
        await self.bus.flush()
        async with self.db.connection() as connection:
            await connection.execute("TRUNCATE runs, outbox, workers")
        await self.redis.flushdb()
        self.queue, self.trees = self._queue(15_000), Trees(self.db, self._outbox(), now_ms)

    def _outbox(self) -> Outbox:
        return Outbox(self.db, outbox_rows, self.bus.publish)

    def _queue(self, lease_ms: int) -> Queue:
        return Queue(self.db, self._outbox(), lease_ms=lease_ms, now=now_ms)

    async def worker(self, *, lease_ms: int = 15_000, slots: int = 8, titles: bool = False) -> Running:
        """A new worker."""
        tokens = TokenSigner("runs-worker", INTERNAL_KEY)
        sessions = Peer("sessions", self.sessions.address, tokens)
        secrets = Peer("secrets", self.secrets.address, tokens)
        queue = self._queue(lease_ms)
        kept = PartialStore(self.redis)
        titler = Titler(self.gateway, enabled=titles)
        # Nobody listens there: verbs of the Space fail.
        space = Peer("memory", "127.0.0.1:9", tokens)
        searching = Searching("http://127.0.0.1:9", "")
        self._close += [titler.close, sessions.close, secrets.close, space.close, searching.close]

        def stream_of(row: Row) -> PartialStream:
            return PartialStream(
                self.bus,
                kept,
                account=row["account"],
                agent_id=row["agent_id"],
                session_id=row["session_id"],
                run_id=row["id"],
                interval_s=0.02,
            )

        family = Family(queue._db, queue._outbox, now_ms)
        parts = Parts(
            queue=queue,
            family=family,
            limits=Limits(),
            models=ModelResolver(secrets),
            gateway=self.gateway,
            now=now_ms,
            log_of=lambda run_id, attempt: SessionLog(sessions, run_id, attempt),
            stream_of=stream_of,
            backoff_ms=lambda failures: 20 * failures,
            title=titler.consider,
            verbs=build_verbs(
                sessions=sessions,
                memory=space,
                triggers=space,
                run=self.trees.get,
                others=OTHER_VERBS,
                executors=searching.executors,
            ),
        )
        pace = Pace(slots=slots, poll_min_s=0.05, poll_max_s=0.2, lease_s=lease_ms / 1000)
        workers = Workers(self.db, lease_ms=lease_ms, now=now_ms)
        before = asyncio.all_tasks()
        worker, stopping = (
            Worker(parts, queue, Answers(family, sessions), self.bus, pace, now_ms, workers),
            asyncio.Event(),
        )
        task = asyncio.create_task(worker.run(stopping))
        loops = {"claims", "leases", "beats", "expiries", "results", "stop"}
        await until(lambda: {t.get_name() for t in asyncio.all_tasks() - before} >= loops)
        running = Running(worker, stopping, task, {t for t in asyncio.all_tasks() - before if t.get_name() in loops})
        self._running.append(running)
        return running

    async def say(self, session: Conversation | None = None, *, behind: bool = False) -> types_pb2.TurnStart:
        """A user's message and the run of its turn."""
        return await self.begin(self.sessions.open(session or self.sessions.conversation(), behind=behind))

    async def begin(self, start: types_pb2.TurnStart) -> types_pb2.TurnStart:
        await self.queue.start(start, INBOX)
        self.bus.publish(events.WORK, b"")
        return start

    async def row(self, run_id: str) -> Row:
        row = await self.trees.get(run_id)
        assert row is not None
        return row

    async def reached(self, run_id: str, *statuses: str, within_s: float = 10.0) -> Row:
        """The run once it has one of these statuses."""
        deadline = time.monotonic() + within_s
        while (row := await self.row(run_id))["status"] not in statuses:
            assert time.monotonic() < deadline, f"still {row['status']}"
            await asyncio.sleep(0.01)
        return row

    async def ended(self, run_id: str, within_s: float = 10.0) -> Row:
        """The run once it has ended."""
        return await self.reached(run_id, *TERMINAL, within_s=within_s)

    async def canceled(self, run_id: str) -> None:
        """What the api does when somebody cancels a run that is live."""
        done = await self.trees.cancel_run(run_id)
        assert [row["id"] for row in done.asked] == [run_id]
        self.sessions.turns[run_id].canceled = True
        self.bus.publish(events.CANCEL, events_pb2.CancelHint(run_ids=[run_id]).SerializeToString())

    async def kept(self, session_id: str) -> dict[bytes, bytes]:
        """Text in flight in Valkey."""
        kept: Any = self.redis.hgetall(partial_key(session_id))
        return await kept

    def streamed(self, run_id: str) -> str:
        """Text of the run that was heard so far."""
        return "".join(p.text_delta for p in self.partials if p.run_id == run_id)

    def phases(self, run_id: str) -> list[str]:
        """What was heard of a run, in order: activities, text and the ends of text blocks."""
        heard: list[str] = []
        for p in self.partials:
            if p.run_id != run_id:
                continue
            word = json.loads(p.activity)["phase"] if p.activity else "done" if p.done else "text"
            heard += [] if heard and heard[-1] == word == "text" else [word]
        return heard

    async def close(self) -> None:
        for running in self._running:
            with contextlib.suppress(asyncio.CancelledError):
                await running.kill()
        for close in self._close:
            await close()
