"""Parts killed in the middle of a turn: the message is answered, once, and who listens misses and doubles nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from libs.protocol.actions import ListAgents
from libs.protocol.responses import MessageSessionResponse
from libs.protocol.ws import WsSessionChange
from libs.stack import ManagedProcess, Stack
from libs.stack.scripted import Say
from tests.integration.conftest import ENVIRONMENT
from tests.support.kit import KEY, Owner, Watch, World, until

RECOVERY_S = 60.0


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack to break, quick to notice a dead worker."""
    env = {**ENVIRONMENT, "SEED_AGENTS_LEASE_MS": "3000"}
    with Stack(tmp_path_factory.mktemp("frail") / "data", 0, edges=2, workers=1, env=env) as running:
        yield running


@pytest.fixture
async def broken(frail: Stack) -> AsyncIterator[World]:
    async with World(frail.urls) as made:
        yield made


class Turn:
    """A turn held in the middle of its answer, watched from both edges."""

    def __init__(self, owner: Owner, session: str, gate: asyncio.Event, watches: list[Watch]) -> None:
        self.owner = owner
        self.session = session
        self.gate = gate
        self.watches = watches
        self.call = asyncio.create_task(owner.client.message(session, "question", "m-1"))

    @classmethod
    async def begin(cls, world: World) -> Turn:
        """Until both watches have seen the first part of the answer."""
        gate = asyncio.Event()
        owner = await world.owner(Say(("begun", " and ended"), gate=gate))
        session = await owner.session()
        watches = [world.watch(world.at(owner.client, edge), f"sessions/{session}") for edge in (0, 1)]
        for watch in watches:
            await watch.kind(WsSessionChange)
        turn = cls(owner, session, gate, watches)
        for watch in watches:
            await watch.streamed("begun")
        return turn

    async def answered_once(self) -> None:
        """Both watches and the log hold the question and its answer, each once; the caller has the answer's id."""
        for watch in self.watches:
            await watch.message("begun and ended", within_s=RECOVERY_S)
        async with asyncio.timeout(RECOVERY_S):
            answer = await self.call
        await self.owner.at_rest(self.session, RECOVERY_S)
        stored = await self.owner.events(self.session)
        assert [(e.event["role"], e.event["content"]) for e in stored] == [
            ("user", "question"),
            ("assistant", "begun and ended"),
        ]
        assert answer.assistant_event_id == stored[-1].id
        for watch in self.watches:
            assert watch.seqs() == [1, 2]
            assert watch.ids() == [e.id for e in stored]
        [run] = await self.owner.runs(self.session)
        assert run.status == "succeeded"


async def restarted(process: ManagedProcess, starts: int) -> None:
    """Wait until the supervisor has started it again and it serves."""
    await until(lambda: process.starts > starts, RECOVERY_S, f"{process.name} started again")
    await asyncio.to_thread(process.wait_ready, RECOVERY_S)


async def crash(process: ManagedProcess) -> None:
    """kill -9, and wait until it is back."""
    starts = process.starts
    process.crash()
    await restarted(process, starts)


async def test_an_edge_is_killed(frail: Stack, broken: World) -> None:
    """The caller's own edge: its call goes out again, its socket is renewed."""
    turn = await Turn.begin(broken)
    await crash(frail.process("edge", 0))
    turn.gate.set()
    await turn.answered_once()
    assert len(turn.owner.provider.requests) == 1


async def test_an_edge_is_killed_and_the_turn_ends_before_it_is_back(frail: Stack, broken: World) -> None:
    turn = await Turn.begin(broken)
    edge = frail.process("edge", 0)
    edge.kill()
    turn.gate.set()
    await turn.watches[1].message("begun and ended")
    edge.start()
    await turn.answered_once()


async def test_an_edge_is_asked_to_stop(frail: Stack, broken: World) -> None:
    """Who waits at it is told to send the same request again, and is answered by the next one."""
    turn = await Turn.begin(broken)
    await asyncio.to_thread(frail.process("edge", 0).restart)
    turn.gate.set()
    await turn.answered_once()
    assert len(turn.owner.provider.requests) == 1


async def test_a_worker_is_killed(frail: Stack, broken: World) -> None:
    """The next claim asks the model again; what the first one streamed leaves nothing in the log."""
    turn = await Turn.begin(broken)
    await crash(frail.process("worker"))
    await until(lambda: len(turn.owner.provider.requests) == 2, RECOVERY_S, "the second attempt")
    turn.gate.set()
    await turn.answered_once()


async def test_a_worker_is_killed_while_it_runs_a_tool_loop(frail: Stack, broken: World) -> None:
    """Tool calls that were logged stay; the new attempt goes on from them."""
    from libs.stack.scripted import Calls

    gate = asyncio.Event()
    owner = await broken.owner(Say(("the", " end"), gate=gate))
    owner.provider.script.append(Calls([("status", {"description": "Half way"})], before="Looking."))
    session = await owner.session()
    watch = broken.watch(broken.at(owner.client, 1), f"sessions/{session}")
    call = asyncio.create_task(owner.client.message(session, "work"))
    await watch.streamed("Looking.the")
    await crash(frail.process("worker"))
    await until(lambda: len(owner.provider.requests) == 3, RECOVERY_S, "the second attempt")
    gate.set()
    await watch.message("the end", within_s=RECOVERY_S)
    async with asyncio.timeout(RECOVERY_S):
        await call
    kinds = [(e.event["type"], e.event.get("content")) for e in await owner.events(session)]
    assert kinds == [
        ("message", "work"),
        ("message", "Looking."),
        ("tool_call", None),
        ("tool_result", None),
        ("message", "the end"),
    ]
    assert watch.seqs() == [1, 2, 3, 4, 5]


async def test_nats_is_killed(frail: Stack, broken: World) -> None:
    turn = await Turn.begin(broken)
    nats = frail.stores.nats
    assert nats is not None
    await crash(nats)
    turn.gate.set()
    await turn.answered_once()


async def test_the_turn_ends_while_nats_is_away(frail: Stack, broken: World) -> None:
    """Rows are the truth: the answer is stored, the caller gets it, and listeners catch up."""
    turn = await Turn.begin(broken)
    nats = frail.stores.nats
    assert nats is not None
    nats.kill()
    turn.gate.set()
    await until(lambda: _is_stored(turn), RECOVERY_S, "the answer in the log")
    nats.start()
    await asyncio.to_thread(nats.wait_ready, RECOVERY_S)
    await turn.answered_once()


async def _is_stored(turn: Turn) -> bool:
    return len(await turn.owner.events(turn.session)) == 2


@pytest.mark.parametrize("name", ["sessions", "runs", "secrets", "postgres", "valkey"])
async def test_any_other_part_is_killed(frail: Stack, broken: World, name: str) -> None:
    turn = await Turn.begin(broken)
    stores = {"postgres": frail.stores.postgres, "valkey": frail.stores.valkey}
    process = stores[name] if name in stores else frail.process(name)
    assert process is not None
    await crash(process)
    turn.gate.set()
    await turn.answered_once()


async def test_restarting_everything_keeps_everything(frail: Stack, broken: World) -> None:
    owner = await broken.owner("Before.")
    session = await owner.session("Kept")
    first = await owner.client.message(session, "question", "m-1")
    before = await owner.client.session(session)
    watch = broken.watch(owner.client, f"sessions/{session}")
    await watch.message("Before.")

    await asyncio.to_thread(frail.stop)
    await asyncio.to_thread(frail.start)

    after = await owner.client.session(session)
    assert (after.session, after.events) == (before.session, before.events)
    [agent] = (await owner.client.call(ListAgents())).agents
    assert agent.id == owner.agent
    assert await owner.client.message(session, "question", "m-1") == first
    owner.provider.reply = "After."
    await owner.client.message(session, "and now")
    assert owner.provider.headers[-1]["authorization"] == f"Bearer {KEY.decode()}"
    await watch.message("After.", within_s=RECOVERY_S)
    assert watch.seqs() == [1, 2, 3, 4]


async def test_a_worker_that_is_asked_to_stop_ends_its_turn_or_hands_it_back(frail: Stack, broken: World) -> None:
    """One turn ends within the grace period, the other is claimed by the next worker, without a failure."""
    quick, stuck = asyncio.Event(), asyncio.Event()
    first, second = await broken.owner(Say(("a", "b"), gate=quick)), await broken.owner(Say(("c", "d"), gate=stuck))
    calls: list[asyncio.Task[MessageSessionResponse]] = []
    sessions: list[str] = []
    for owner, part in ((first, "a"), (second, "c")):
        session = await owner.session()
        watch = broken.watch(owner.client, f"sessions/{session}")
        calls.append(asyncio.create_task(owner.client.message(session, "hi")))
        await watch.streamed(part)
        sessions.append(session)
    worker = frail.process("worker")
    stopping = asyncio.create_task(asyncio.to_thread(worker.stop))
    quick.set()
    assert (await calls[0]).assistant_event_id
    await stopping
    [run] = await second.runs(sessions[1])
    assert run.status == "queued"
    stuck.set()
    worker.start()
    assert (await calls[1]).assistant_event_id
    assert await second.said(sessions[1]) == [("user", "hi"), ("assistant", "cd")]
    assert await first.said(sessions[0]) == [("user", "hi"), ("assistant", "ab")]
