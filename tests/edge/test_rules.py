"""The replay window, waiting for turns, audiences and fields, without any I/O."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs import wire
from libs.errors import BadGateway, Conflict, Invalid, NotFound, SeedError, Unauthenticated, Unavailable
from services.edge.api.call import Call
from services.edge.domain import turns
from services.edge.domain.audience import Standing, hint_account, member_role, parse_key, role_now
from services.edge.domain.replay import Answer, ReplayWindow, StoreAway
from services.edge.domain.seq import NOT_A_SEQ, after_seq
from services.edge.domain.turns import Outcome, TurnWaits, answer_of


class Memory:
    """A store in a dict."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[bytes, int]] = {}
        self.away = False
        self.commands = 0

    def _command(self) -> None:
        self.commands += 1
        if self.away:
            raise StoreAway

    async def claim(self, key: str, mark: bytes, ttl_ms: int) -> bytes | None:
        self._command()
        if key in self.kept:
            return self.kept[key][0]
        self.kept[key] = (mark, ttl_ms)
        return None

    async def extend(self, key: str, ttl_ms: int) -> None:
        self._command()

    async def put(self, key: str, value: bytes, ttl_ms: int) -> None:
        self._command()
        self.kept[key] = (value, ttl_ms)

    async def release(self, key: str, mark: bytes) -> None:
        self._command()
        if key in self.kept and self.kept[key][0] == mark:
            del self.kept[key]


class Slow(Memory):
    """Keeps an answer once the gate is open."""

    gate: asyncio.Event

    async def put(self, key: str, value: bytes, ttl_ms: int) -> None:
        await self.gate.wait()
        await super().put(key, value, ttl_ms)


def window(store: Memory) -> ReplayWindow:
    return ReplayWindow(store, now_ms=lambda: 1_000.0, skew_ms=300)


def work(*answers: Answer) -> Any:
    left = list(answers)

    async def run() -> Answer:
        return left.pop(0)

    return run


@pytest.mark.parametrize("body", [b"x", b"x" * 10_000])
async def test_the_stored_answer_is_the_first_one(body: bytes) -> None:
    store = Memory()
    run = work(Answer(200, body), Answer(200, b"second"))
    first = window(store)
    assert await first.run(b"s", 1_200.0, run) == Answer(200, body)
    await first.close()
    assert store.commands == 2
    assert await window(store).run(b"s", 1_200.0, run) == Answer(200, body)
    ((value, ttl),) = store.kept.values()
    assert 500 < ttl <= 1_500 and len(value) <= len(body) + 48, "kept while ts is acceptable, and little longer"


@pytest.mark.parametrize("status, again", [(500, True), (503, True), (502, False), (400, False), (409, False)])
async def test_only_our_own_failures_are_forgotten(status: int, again: bool) -> None:
    run = work(Answer(status, b"1"), Answer(200, b"2"))
    w = window(Memory())
    await w.run(b"s", 1_000.0, run)
    assert (await w.run(b"s", 1_000.0, run) == Answer(200, b"2")) is again


async def test_in_flight_and_what_is_raised() -> None:
    store = Memory()
    w = window(store)

    async def nested() -> Answer:
        with pytest.raises(Conflict):
            await w.run(b"s", 1_000.0, work(Answer(200, b"")))
        raise ValueError

    with pytest.raises(ValueError):
        await w.run(b"s", 1_000.0, nested)
    assert not store.kept


async def test_an_answer_does_not_wait_until_it_is_kept() -> None:
    store, kept = Slow(), asyncio.Event()
    store.gate = kept
    here, elsewhere = window(store), window(store)
    run = work(Answer(200, b"1"))
    assert await here.run(b"s", 1_000.0, run) == Answer(200, b"1")
    at_home = asyncio.create_task(here.run(b"s", 1_000.0, run))
    abroad = asyncio.create_task(elsewhere.run(b"s", 1_000.0, run))
    asyncio.get_running_loop().call_later(0.01, kept.set)
    assert await at_home == await abroad == Answer(200, b"1"), "who repeats in that moment gets it too"
    await here.close()
    assert not here._settling


async def test_a_request_that_goes_on_is_refused_elsewhere() -> None:
    store, end = Memory(), asyncio.Event()

    async def long() -> Answer:
        await end.wait()
        return Answer(200, b"")

    running = asyncio.create_task(window(store).run(b"s", 1_000.0, long))
    await asyncio.sleep(0)
    with pytest.raises(Conflict, match="still being handled"):
        await window(store).run(b"s", 1_000.0, work())
    end.set()
    await running


async def test_the_store_away() -> None:
    store = Memory()
    store.away = True
    with pytest.raises(Unavailable):
        await window(store).run(b"s", 1_000.0, work())
    store.away = False

    async def fails_meanwhile() -> Answer:
        store.away = True
        return Answer(200, b"done")

    assert await window(store).run(b"t", 1_000.0, fails_meanwhile) == Answer(200, b"done")


# Turns


async def nothing() -> None:
    return


async def test_news_before_the_start_returns() -> None:
    async def ask(_run_id: str) -> Outcome | None:
        raise AssertionError("nobody had to ask")

    waits = TurnWaits(ask)

    async def begin() -> None:
        waits.settled("r", Outcome("succeeded", "e"))

    assert await waits.wait("r", 5, begin) == Outcome("succeeded", "e") and not waits._waiting


async def test_asked_at_once_when_the_bus_is_back_and_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "NEXT_ASK_S", 0.01)
    found: list[Any] = [Unavailable("away"), None, Outcome("succeeded", "e")]

    async def ask(_run_id: str) -> Outcome | None:
        value = found.pop(0)
        if isinstance(value, SeedError):
            raise value
        return value

    waits = TurnWaits(ask)
    begun = asyncio.Event()

    async def begin() -> None:
        begun.set()

    waiting = asyncio.create_task(waits.wait("r", 5, begin))
    await begun.wait()
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await waits.ask_now()
    assert await waiting == Outcome("succeeded", "e") and loop.time() - started < 0.9


async def test_the_end_of_waiting() -> None:
    async def ask(_run_id: str) -> Outcome | None:
        return None

    waits = TurnWaits(ask)
    assert await waits.wait("r", 0.01, nothing) is None
    begun = asyncio.Event()

    async def begin() -> None:
        begun.set()

    waiting = asyncio.create_task(waits.wait("r", 5, begin))
    await begun.wait()
    waits.close()
    for who in (waiting, waits.wait("r", 5, nothing)):
        with pytest.raises(Unavailable) as refused:
            await who
        assert refused.value.retry_after_s
    assert not waits._waiting


@pytest.mark.parametrize(
    "outcome, error",
    [
        (Outcome("failed", error_status=400, error_message="m"), Invalid),
        (Outcome("failed", error_status=401, error_message="m"), Unauthenticated),
        (Outcome("failed", error_status=502, error_message="m"), BadGateway),
        (Outcome("failed"), BadGateway),
        (Outcome("canceled", gone="Agent"), NotFound),
    ],
)
def test_failures_of_a_turn(outcome: Outcome, error: type[SeedError]) -> None:
    with pytest.raises(error):
        answer_of(outcome)


# Audiences and fields


@pytest.mark.parametrize(
    "key", [None, 5, "", "account", "account/", "account/b", "Account/a", "x/a", "agents/a/b", "*"]
)
def test_keys_that_name_nothing(key: object) -> None:
    with pytest.raises(Invalid, match="not authorized"):
        parse_key(key, "a")


def test_keys() -> None:
    assert parse_key("account/a", "a") == ("account", "a") and parse_key("runs/r-1", "a") == ("runs", "r-1")


def test_roles_and_hints() -> None:
    owner = Standing("o", "g", "o", "owner", True)
    writer = Standing("w", "g", "o", "writer", True)
    reader = Standing("r", "g", "o", "reader", True)
    public = Standing("p", "g", "o", "reader", False)
    off = {"public_read": False, "public_chat": False}
    chat = {"public_read": True, "public_chat": True}
    assert [role_now(s, **off) for s in (owner, writer, reader, public)] == ["owner", "writer", "reader", None]
    assert [role_now(s, **chat) for s in (owner, writer, reader, public)] == ["owner", "writer", "chatter", "chatter"]
    assert role_now(public, public_read=True, public_chat=False) == "reader"
    assert member_role("chatter", public_chat=False) == "reader", "what sessions told while public chat was on"
    assert [hint_account(s) for s in (owner, reader, public)] == ["o", "r", "o"]


@pytest.mark.parametrize(
    "value, seq",
    [(0, 0), (7, 7), (3.0, 3), (2**70, 2**63 - 1), (-1, NOT_A_SEQ), (1.5, NOT_A_SEQ), ("1", NOT_A_SEQ),
     (None, NOT_A_SEQ), (True, NOT_A_SEQ), (float("inf"), NOT_A_SEQ), ([], NOT_A_SEQ)],
)  # fmt: skip
def test_after_seq(value: Any, seq: int) -> None:
    assert after_seq(value) == seq


def test_fields() -> None:
    key = wire.Key.generate()
    action = {"_": "X", "text": 5, "null": None, "bytes": b"b", "limit": 2.9}
    call = Call(wire.verify_envelope(wire.sign_envelope(key, action, ts=1), now_ms=1))
    assert call.text("text") == "" and call.optional_text("absent") is None and call.optional_text("null") == ""
    assert call.cbor("null") == b"\xf6" and call.cbor("absent") is None and call.json("null") == b"null"
    assert call.binary("bytes") == b"b" and call.binary("text") is None and call.limit() == 2
