"""Turns that are canceled, interrupted, taken over or handed back."""

import asyncio
import json

import pytest
from redis.asyncio import Redis
from seed.events.v1 import events_pb2
from seed.sessions.v1 import types_pb2

from libs.stack.ports import free_ports
from libs.stack.scripted import Calls, Fail, Say
from libs.store import Row
from services.runs.worker import worker as worker_module
from services.runs.worker.partials import PartialStore, PartialStream
from tests.runs.house import AGENT, OWNER, turn, until
from tests.runs.workshop import Workshop


def says(session: object) -> list[str]:
    """What the assistant has said in a session."""
    return [e["content"] for e in session.log if e.get("role") == "assistant"]  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_cancel_in_mid_stream_keeps_the_text_so_far(shop: Workshop) -> None:
    shop.provider.reply = Say(["Once upon", " a time"], gate=asyncio.Event())
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: shop.streamed(start.run_id))
    await shop.canceled(start.run_id)
    row = await shop.ended(start.run_id)
    assert (row["status"], row["error"]) == ("canceled", None)
    assert says(session) == ["Once upon"]
    assert row["assistant_event_id"] == session.events[-1].id
    [outcome] = await until(lambda: shop.settled)
    assert (outcome.status, outcome.assistant_event_id) == ("canceled", row["assistant_event_id"])
    assert shop.phases(start.run_id)[-2:] == ["text", "done"]
    assert await shop.kept(session.id) == {}


async def test_a_cancel_before_any_text_says_so(shop: Workshop) -> None:
    shop.provider.reply = Say(["Never"], gate=asyncio.Event(), gate_at=0)
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: shop.provider.requests)
    await shop.canceled(start.run_id)
    assert (await shop.ended(start.run_id))["status"] == "canceled"
    assert says(session) == ["Stopped."]


async def test_a_cancel_that_no_hint_tells_of_is_found_with_the_lease(shop: Workshop) -> None:
    shop.provider.reply = Say(["Once upon", " a time"], gate=asyncio.Event())
    await shop.worker(lease_ms=600)
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: shop.streamed(start.run_id))
    await shop.trees.cancel_run(start.run_id)
    assert (await shop.ended(start.run_id))["status"] == "canceled"
    assert says(session) == ["Once upon"]


async def test_a_cancel_at_the_end_of_a_reply_keeps_all_of_it(shop: Workshop) -> None:
    gate = shop.sessions.gates["FinishTurn"] = asyncio.Event()
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: "FinishTurn" in shop.sessions.calls)
    # Sessions hears of the cancel before the reply is stored, so it refuses the reply as such.
    shop.sessions.turns[start.run_id].canceled = True
    gate.set()
    assert (await shop.ended(start.run_id))["status"] == "canceled"
    assert says(session) == ["Hello from the scripted model."]


async def test_a_cancel_that_comes_twice_does_not_interrupt_itself(shop: Workshop) -> None:
    shop.provider.reply = Calls([("status", {"title": "T"})], before="Let me see.")
    append, finish = (
        shop.sessions.gates.setdefault(name, asyncio.Event()) for name in ("AppendTurnEvents", "FinishTurn")
    )
    running = await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: "AppendTurnEvents" in shop.sessions.calls)
    await shop.trees.cancel_run(start.run_id)
    shop.sessions.turns[start.run_id].canceled = True
    append.set()
    await until(lambda: "FinishTurn" in shop.sessions.calls)
    running.worker._on_cancel("", events_pb2.CancelHint(run_ids=[start.run_id]).SerializeToString())
    finish.set()
    assert (await shop.ended(start.run_id))["status"] == "canceled"
    assert says(session) == ["Let me see."]
    assert shop.sessions.calls.count("FinishTurn") == 1


async def test_a_cancel_that_comes_before_the_first_step_ends_the_turn(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await shop.worker()
    claim = running.worker._queue.claim

    async def claim_then_cancel(worker: str, slots: int) -> list[Row]:
        rows = await claim(worker, slots)
        for row in rows:
            await shop.trees.cancel_run(row["id"])
            hint = events_pb2.CancelHint(run_ids=[row["id"]]).SerializeToString()
            # Runs before the task that the worker is about to make for the run.
            asyncio.get_running_loop().call_soon(running.worker._on_cancel, "", hint)
        return rows

    monkeypatch.setattr(running.worker._queue, "claim", claim_then_cancel)
    session = shop.sessions.conversation()
    start = await shop.say(session)
    assert (await shop.ended(start.run_id))["status"] == "canceled"
    assert says(session) == ["Stopped."]
    await until(lambda: not running.worker._held)
    assert shop.provider.requests == []


async def test_a_cancel_during_a_tool_leaves_what_was_said(shop: Workshop) -> None:
    shop.provider.reply = Calls([("status", {"title": "T"})], before="Let me see.")
    shop.sessions.gates["DescribeSession"] = asyncio.Event()
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: "DescribeSession" in shop.sessions.calls)
    await shop.canceled(start.run_id)
    assert (await shop.ended(start.run_id))["status"] == "canceled"
    assert says(session) == ["Let me see."]


async def test_a_killed_worker_is_followed_by_another_that_ends_the_turn_once(shop: Workshop) -> None:
    shop.provider.script += [Say(["Half a", " reply"], gate=asyncio.Event()), "A whole reply."]
    first = await shop.worker(lease_ms=500)
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: shop.streamed(start.run_id))
    [left] = await shop.kept(session.id)
    await first.kill()
    assert (await shop.row(start.run_id))["status"] == "running"
    await shop.worker()
    row = await shop.ended(start.run_id)
    assert (row["status"], row["attempt"], row["failures"]) == ("succeeded", 2, 0)
    assert says(session) == ["A whole reply."]
    [outcome] = await until(lambda: shop.settled)
    assert outcome.assistant_event_id == row["assistant_event_id"]
    # The block that the dead worker left open is closed, and nothing of it is kept.
    assert left.decode() in {p.partial_id for p in shop.partials if p.done}
    assert await shop.kept(session.id) == {}


async def test_usage_goes_on_over_attempts(shop: Workshop) -> None:
    shop.provider.script += [Calls([("status", {"title": "T"})]), Say(["x"], gate=asyncio.Event(), gate_at=0), "Done."]
    first = await shop.worker(lease_ms=500)
    start = await shop.say()
    await until(lambda: len(shop.provider.requests) == 2)
    await first.kill()
    await shop.worker()
    row = await shop.ended(start.run_id)
    assert json.loads(row["usage"])["total"] == 20


@pytest.mark.parametrize("by", ["another", "itself"])
async def test_a_claim_that_was_lost_writes_nothing_more(shop: Workshop, by: str) -> None:
    late = asyncio.Event()
    shop.provider.script += [Say(["Too", " late"], gate=late), "In time."]
    frozen = await shop.worker(slots=1 if by == "another" else 2)
    session = shop.sessions.conversation()
    start = await shop.say(session)
    held = await until(lambda: shop.streamed(start.run_id) and frozen.worker._held[start.run_id])
    if by == "another":
        await shop.worker()
    async with shop.db.connection() as connection:
        await connection.execute("UPDATE runs SET lease_until = 0")
    row = await shop.ended(start.run_id)
    late.set()
    await until(lambda: held.task.done())
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    assert says(session) == ["In time."]
    assert (await shop.row(start.run_id))["version"] == row["version"]
    assert held.stop == ("lost" if by == "itself" else "settling")


async def test_a_turn_whose_end_is_on_record_is_not_executed_again(shop: Workshop) -> None:
    starts = [shop.sessions.open(shop.sessions.conversation()) for _ in range(3)]
    outcomes = [("succeeded", "", 0), ("failed", "no key", 400), ("failed", "boom", 502)]
    for start, (status, message, code) in zip(starts, outcomes, strict=True):
        shop.sessions.turns[start.run_id].outcome = types_pb2.TurnOutcome(
            run_id=start.run_id, status=status, assistant_event_id="e9", error_message=message, error_status=code
        )
        await shop.begin(start)
    await shop.worker()
    rows = [await shop.ended(start.run_id) for start in starts]
    assert [row["status"] for row in rows] == ["succeeded", "failed", "failed"]
    assert rows[0]["assistant_event_id"] == "e9"
    assert [json.loads(row["error"])["code"] for row in rows[1:]] == ["config-error", "provider-error"]
    assert shop.provider.requests == []


async def test_stopping_lets_a_short_turn_end(shop: Workshop) -> None:
    gate = asyncio.Event()
    shop.provider.reply = Say(["Hello", "."], gate=gate)
    running = await shop.worker()
    start = await shop.say()
    await until(lambda: shop.streamed(start.run_id))
    stopped = asyncio.create_task(running.stop())
    await until(lambda: running.worker._stopping)
    other = await shop.say()
    gate.set()
    await stopped
    assert (await shop.row(start.run_id))["status"] == "succeeded"
    assert (await shop.row(other.run_id))["status"] == "queued"


async def test_stopping_hands_a_long_turn_back(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "GRACE_S", 0.1)
    shop.provider.script += [Say(["Half a", " reply"], gate=asyncio.Event()), "A whole reply."]
    running = await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: shop.streamed(start.run_id))
    await running.stop()
    row = await shop.row(start.run_id)
    assert (row["status"], row["attempt"], row["failures"], row["lease_until"]) == ("queued", 1, 0, None)
    await shop.worker()
    assert (await shop.ended(start.run_id))["status"] == "succeeded"
    assert says(session) == ["A whole reply."]


async def test_sessions_may_go_away_during_a_turn(shop: Workshop) -> None:
    gate = asyncio.Event()
    shop.provider.reply = Say(["Hello", "."], gate=gate)
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: shop.streamed(start.run_id))
    await shop.sessions.stop()
    gate.set()
    await until(lambda: "done" in shop.phases(start.run_id))
    await shop.sessions.start()
    row = await shop.ended(start.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)
    assert says(session) == ["Hello."]


async def test_a_turn_that_sessions_stays_away_from_is_handed_back(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.runs.worker.log.PATIENCE_S", 0.3)
    await shop.sessions.stop()
    await shop.worker()
    start = turn("s1")
    await shop.begin(start)
    await shop.reached(start.run_id, "running")
    row = await shop.reached(start.run_id, "queued")
    assert (row["failures"], row["error"]) == (0, None)
    shop.sessions.track(start)
    shop.sessions.conversation("s1").add(type="message", role="user", content="hi")
    await shop.sessions.start()
    assert (await shop.ended(start.run_id))["status"] == "succeeded"


@pytest.mark.parametrize("noun", ["Session", "Agent"])
async def test_what_is_deleted_during_a_turn_ends_it(shop: Workshop, noun: str) -> None:
    gate = asyncio.Event()
    shop.provider.reply = Say(["Hello", "."], gate=gate)
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: shop.streamed(start.run_id))
    session.gone = noun
    gate.set()
    row = await shop.ended(start.run_id)
    assert (row["status"], row["gone"]) == ("canceled", noun)
    assert await shop.kept(session.id) == {}
    assert (await until(lambda: shop.settled))[0].gone == noun


async def test_a_worker_holds_no_more_than_its_slots(shop: Workshop) -> None:
    gate = asyncio.Event()
    shop.provider.script.append(Say(["Hello", "."], gate=gate))
    running = await shop.worker(slots=1)
    first, second = await shop.say(), await shop.say()
    await until(lambda: shop.streamed(first.run_id))
    assert list(running.worker._held) == [first.run_id]
    assert (await shop.row(second.run_id))["status"] == "queued"
    gate.set()
    assert (await shop.ended(second.run_id))["status"] == "succeeded"


async def test_a_worker_outlives_a_failure_of_its_loops(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await shop.worker(lease_ms=300)
    failed: list[str] = []

    def failing(name: str) -> None:
        real = getattr(running.worker._queue, name)

        async def once(*arguments: object) -> object:
            if name not in failed:
                failed.append(name)
                raise RuntimeError("a deadlock, say")
            return await real(*arguments)

        monkeypatch.setattr(running.worker._queue, name, once)

    gate = asyncio.Event()
    shop.provider.reply = Say(["Hello", "."], gate=gate)
    start = await shop.say()
    await until(lambda: shop.streamed(start.run_id))
    for name in ("claim", "renew", "expire"):
        failing(name)
    running.worker.wake()
    await until(lambda: len(failed) == 3)
    gate.set()
    assert (await shop.ended(start.run_id))["status"] == "succeeded"


async def test_a_failed_write_of_one_tool_ends_the_others(shop: Workshop) -> None:
    shop.provider.reply = Calls([("status", {"title": "T"}), ("plan", {"steps": ["a"]})])
    held = shop.sessions.gates["SetPlan"] = asyncio.Event()
    describe = shop.sessions.gates["DescribeSession"] = asyncio.Event()
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: {"SetPlan", "DescribeSession"} <= set(shop.sessions.calls))
    shop.sessions.turns[start.run_id].canceled = True
    describe.set()
    assert (await shop.ended(start.run_id))["status"] == "canceled"
    held.set()
    assert session.plan == b""


def stream_to(shop: Workshop, store: PartialStore) -> PartialStream:
    return PartialStream(shop.bus, store, account=OWNER, agent_id=AGENT, session_id="s1", run_id="r1", interval_s=0.01)


async def test_valkey_may_be_away(shop: Workshop) -> None:
    redis = Redis.from_url(f"redis://127.0.0.1:{free_ports(1)[0]}", socket_timeout=0.2, socket_connect_timeout=0.2)
    stream = stream_to(shop, PartialStore(redis))
    stream.add("Hello")
    stream.add(".")
    await stream.end_block()
    await stream.clear()
    await stream.clear_earlier()
    await until(lambda: shop.phases("r1")[-1:] == ["done"])
    assert shop.streamed("r1") == "Hello."
    await redis.aclose()


class HeldStore(PartialStore):
    """Keeps nothing before it is let go."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def put(self, session_id: str, partial_id: str, text: str) -> None:
        self.asked.set()
        await self.go.wait()
        await super().put(session_id, partial_id, text)


async def test_canceling_the_one_who_waits_does_not_cancel_the_sending(shop: Workshop) -> None:
    store = HeldStore(shop.redis)
    stream = stream_to(shop, store)
    stream.add("Hello")
    await store.asked.wait()
    waiting = asyncio.create_task(stream.drain())
    await asyncio.wait([waiting], timeout=0)
    waiting.cancel()
    await asyncio.wait([waiting])
    store.go.set()
    await stream.drain()
    await until(lambda: shop.streamed("r1") == "Hello")
    assert stream.text == "Hello"


async def test_a_provider_that_asks_for_time_gets_it(shop: Workshop) -> None:
    shop.provider.script += [Fail(429, "slow down", {"Retry-After": "1"}), "Hello."]
    await shop.worker()
    row = await shop.ended((await shop.say()).run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)
