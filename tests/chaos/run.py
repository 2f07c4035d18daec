"""A chaos run: start everything, load it, hurt it, let it come to rest, gather what there is to check."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import msgspec
from msgspec import UNSET

from libs.client import Client, Key
from libs.protocol.agents import AgentDefinition
from libs.protocol.secrets import ModelProviderConfig
from libs.stack import Stack
from libs.stack.scripted import MODEL, ScriptedProvider
from tests.chaos.checker import violations
from tests.chaos.faults import Hurting, schedule
from tests.chaos.history import Event, History, Run, Session, Turn
from tests.chaos.load import Insisting, Reader, StrictReader, Writer
from tests.chaos.model import Model
from tests.support.kit import KEY

ENVIRONMENT = {
    "SEED_AGENTS_SESSION_TITLE_GENERATION": "false",
    "SEED_AGENTS_RATE_LIMITS": "off",
    "SEED_AGENTS_LEASE_MS": "2000",
    # Children of one tree hang together; the rest of the load is many small sessions.
    "SEED_AGENTS_WORKER_SLOTS": "16",
}
_WRITERS = 4
_ACCOUNTS = 2
_REST_S = 60.0
_HEARD_S = 20.0
_FOLLOWED_TREES = 12
_SERVICES = ("runs", "secrets", "sessions")

_EVENTS = "select session_id, seq, id, payload, coalesce(run_id, '') as run from sessions.session_events order by seq"
_TURNS = "select * from sessions.session_turns order by number"
_SESSIONS = "select id, last_seq from sessions.sessions order by created_at"
_LIVE = (
    "select (select count(*) from sessions.session_turns where state <> 'done')"
    " + (select count(*) from runs.runs where status not in ('succeeded', 'failed', 'canceled'))"
)


@dataclass(slots=True)
class Result:
    """What came of a run."""

    history: History
    violations: list[str]
    requests: int
    """How often the model was asked."""
    seconds: float = 0.0


@dataclass(slots=True)
class _People:
    """Everybody who takes part."""

    stack: Stack
    clients: list[list[Client]] = field(default_factory=list)
    """By account, then by edge."""
    agents: list[str] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    readers: list[Reader | StrictReader] = field(default_factory=list)
    trees: list[Reader] = field(default_factory=list)

    def listen(self, account: int, session: str) -> None:
        """Three listeners of a session: the SDK's at each edge, a strict one at both."""
        for edge, client in enumerate(self.clients[account]):
            self.readers.append(Reader(client, f"sessions/{session}", f"reader {edge}"))
        self.readers.append(StrictReader(self.clients[account][0], self.stack.urls, session, "strict reader"))

    async def follow(self, chance: random.Random, stop: asyncio.Event) -> None:
        """Subscribe to trees of runs as they turn up."""
        known: set[str] = set()
        while not stop.is_set() and len(known) < _FOLLOWED_TREES:
            await asyncio.sleep(1.0)
            account = chance.randrange(_ACCOUNTS)
            sessions = [r.seen.session for r in self.readers if isinstance(r, Reader)]
            for session in sessions[-2 * _WRITERS :]:
                try:
                    runs = (await self.clients[account][0].call("ListRuns", sessionId=session, limit=1)).runs
                except Exception:  # noqa: BLE001 - it is about to be killed, or not this account's
                    continue
                for run in runs:
                    if run.id not in known and len(known) < _FOLLOWED_TREES:
                        known.add(run.id)
                        client = chance.choice(self.clients[account])
                        self.trees.append(Reader(client, f"runs/{run.id}", f"follower of {run.id}"))


async def chaos(folder: Path, seed: int, kills: int, say: Callable[[str], None] = print) -> Result:
    """Run it in `folder`; `say` is told what happens. Everything that is decided at random derives from `seed`."""
    started = time.monotonic()
    model = Model()
    async with Stack(folder, 0, edges=2, workers=2, env=ENVIRONMENT) as stack:
        async with ScriptedProvider(model.answer, keep_requests=False) as provider:
            people = _People(stack)
            try:
                trouble = await _live(people, provider.url, seed, kills, say)
                await _rest(stack, say)
                history = await _gather(people, model)
                history.faults = list(_faults(folder / "logs"))
            finally:
                for client in (client for clients in people.clients for client in clients):
                    await client.close()
    found = [*trouble, *violations(history)]
    return Result(history, found, model.requests, time.monotonic() - started)


async def _live(people: _People, provider: str, seed: int, kills: int, say: Callable[[str], None]) -> list[str]:
    stack = people.stack
    for account in range(_ACCOUNTS):
        first = Client(stack.urls[0], Key.generate(), away_s=90.0)
        people.clients.append([first, *(first.at(url) for url in stack.urls[1:])])
        await first.set_secret("key", KEY)
        config = ModelProviderConfig(type="custom", base_url=provider, secret_refs={"apiKey": "key"})
        await first.set_provider("scripted", config)
        definition = AgentDefinition(
            name=f"Agent {account}", system_prompt="Be brief.", model_provider="scripted", model=MODEL
        )
        people.agents.append(await first.create_agent(definition))
    stop = asyncio.Event()
    for n in range(_WRITERS):
        account = n % _ACCOUNTS
        chance = random.Random(f"{seed}:writer {n}")
        insisting = Insisting(people.clients[account], random.Random(f"{seed}:edges of {n}"))
        writer = Writer(str(n), insisting, people.agents[account], chance, lambda s, a=account: people.listen(a, s))
        people.writers.append(writer)
    async with asyncio.TaskGroup() as group:
        for writer in people.writers:
            group.create_task(writer.run(stop))
        group.create_task(people.follow(random.Random(f"{seed}:followers"), stop))
        await Hurting(stack, say).run(schedule(seed, kills))
        stop.set()
    say("all messages are answered")
    return [trouble for writer in people.writers for trouble in writer.trouble]


async def _rest(stack: Stack, say: Callable[[str], None]) -> None:
    """Wait until nothing is under way; what is under way after a minute is for the checker."""
    db = await asyncpg.connect(stack.stores.database_url)
    try:
        end = time.monotonic() + _REST_S
        while left := await db.fetchval(_LIVE) + sum((await _outboxes(db)).values()):
            if time.monotonic() > end:
                say(f"not at rest after {_REST_S:.0f} s: {left} things are under way")
                return
            await asyncio.sleep(0.2)
        say("everything is at rest")
    finally:
        await db.close()


async def _outboxes(db: asyncpg.Connection) -> dict[str, int]:
    return {service: await db.fetchval(f"select count(*) from {service}.outbox") or 0 for service in _SERVICES}


async def _gather(people: _People, model: Model) -> History:
    """What the API tells of every session, joined with whose events they are, which only the database knows."""
    history = History(sent=[one for writer in people.writers for one in writer.sent])
    db = await asyncpg.connect(people.stack.stores.database_url)
    try:
        written = {row["id"]: row["run"] for row in await db.fetch(_EVENTS)}
        turns = await db.fetch(_TURNS)
        last_seqs = {row["id"]: row["last_seq"] for row in await db.fetch(_SESSIONS)}
        history.outbox = await _outboxes(db)
    finally:
        await db.close()
    for (client, *_), agent in zip(people.clients, people.agents, strict=True):
        for info in (await client.call("GetAgent", agentId=agent)).sessions:
            got = await client.session(info.id)
            events = [Event(e.id, e.seq, e.event, written.get(e.id, "")) for e in got.events]
            mine = [_turn(row) for row in turns if row["session_id"] == info.id]
            link = got.session.continued_from
            before = "" if link is UNSET else link.session_id  # pyright: ignore[reportAttributeAccessIssue]
            history.sessions.append(Session(info.id, got.session.status, last_seqs[info.id], events, mine, before))
        roots = {row["root_run_id"] or row["run_id"] for row in turns if row["agent_id"] == agent}
        for root in sorted(roots):
            tree = (await client.call("ListRuns", rootRunId=root, limit=200)).runs
            history.runs += [Run(r.id, r.status, r.parent_run_id or "") for r in tree]
    await _heard(people, history)
    history.shown = list(model.shown.values())
    return history


def _faults(logs: Path) -> Iterator[str]:
    """Errors in the logs of our services; the stores log in their own way."""
    for log in sorted(logs.glob("*.log")):
        for line in log.read_text("utf-8", "replace").splitlines():
            if '"level": "error"' in line and line.startswith("{"):
                entry = msgspec.json.decode(line)
                where = (entry.get("fault") or {}).get("frames") or [""]
                yield f"{log.stem}: {entry.get('event')} {entry.get('error', '')} {where[-1]}"


def _turn(row: asyncpg.Record) -> Turn:
    return Turn(
        run=row["run_id"],
        number=row["number"],
        messages=list(row["event_ids"]),
        state=row["state"],
        status=row["status"],
        answer=row["assistant_event_id"],
        retry=row["retry"],
        behind=row["queued_behind"],
        parent=row["parent_run_id"],
        call=row["parent_tool_call_id"],
        finished_at=row["finished_at"] or 0,
        continued=row["continued_to"] or "",
    )


async def _heard(people: _People, history: History) -> None:
    """Give listeners time to hear the end of it."""
    last = {session.id: session.last_seq for session in history.sessions}
    status = {session.id: session.status for session in history.sessions}
    runs = {run.id: run.status for run in history.runs}

    def all_heard() -> bool:
        return all(
            r.seen.events and r.seen.events[-1][0] >= last.get(r.seen.session, 0)
            and r.seen.status == status.get(r.seen.session)
            for r in people.readers
        ) and all(
            tree.followed.states and {run: s for run, s, _ in tree.followed.states}.items() <= runs.items()
            for tree in people.trees
        )  # fmt: skip

    end = time.monotonic() + _HEARD_S
    while not all_heard() and time.monotonic() < end:  # noqa: ASYNC110 - there are many things to wait for
        await asyncio.sleep(0.1)
    for reader in (*people.readers, *people.trees):
        if why := await reader.close():
            raise AssertionError(why)
    history.seen = [reader.seen for reader in people.readers]
    history.followed = [tree.followed for tree in people.trees]


def describe(result: Result) -> str:
    """One line of numbers."""
    history = result.history
    events = sum(len(session.events) for session in history.sessions)
    status: dict[str, int] = {}
    for run in history.runs:
        status[run.status] = status.get(run.status, 0) + 1
    shares = msgspec.json.encode(status).decode()
    return (
        f"{len(history.sent)} messages, {len(history.sessions)} sessions, {events} events, runs {shares}, "
        f"{len(history.seen)} readers, {result.requests} model requests, {result.seconds:.0f} s"
    )
