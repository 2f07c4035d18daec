"""The bus on a real NATS that is killed, and against one that misbehaves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from structlog.testing import capture_logs

from libs.events import Bus, bus
from tests.events.conftest import FakeServer, Nats, until


class Ears:
    """A handler that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def __call__(self, subject: str, body: bytes) -> None:
        self.heard.append(body)


async def test_messages_arrive_in_order(buses: Any) -> None:
    sender, listener = await buses(), await buses()
    plain, slow = Ears(), Ears()

    async def handler(subject: str, body: bytes) -> None:
        await asyncio.sleep(0)
        slow(subject, body)

    await listener.subscribe("t.>", plain)
    await listener.subscribe("t.a", handler)
    assert await listener.flush()
    sent = [str(n).encode() for n in range(2_000)]
    assert all(sender.publish("t.a", body) for body in sent)
    await until(lambda: len(plain.heard) == len(slow.heard) == 2_000)
    assert plain.heard == slow.heard == sent


async def test_flush_covers_what_was_published_just_before(buses: Any) -> None:
    one = await buses()
    ears = Ears()
    await one.subscribe("t", ears)
    for number in range(500):
        one.publish("t", b"%d" % number)
    assert await one.flush(5)
    # The server sends what it handled before its answer to the flush.
    await until(lambda: len(ears.heard) == 500)


async def test_handlers_of_one_subscription_run_one_after_the_other(buses: Any) -> None:
    one = await buses()
    running = most = done = 0

    async def handler(subject: str, body: bytes) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done += 1

    await one.subscribe("t", handler)
    for _ in range(100):
        one.publish("t", b"")
    await until(lambda: done == 100)
    assert most == 1


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError()], ids=["error", "canceled"])
async def test_a_handler_that_fails_hears_on(buses: Any, error: BaseException) -> None:
    one = await buses()
    ears = Ears()

    async def waiting(subject: str, body: bytes) -> None:
        ears(subject, body)
        if body == b"bad":
            future = asyncio.get_running_loop().create_future()
            if isinstance(error, asyncio.CancelledError):
                future.cancel()
            else:
                future.set_exception(error)
            await future

    def at_once(subject: str, body: bytes) -> None:
        if body == b"bad":
            raise error
        ears(subject, body)

    for handler in (waiting, at_once):
        ears.heard.clear()
        with capture_logs() as lines:
            subscription = await one.subscribe("t", handler)
            one.publish("t", b"bad")
            one.publish("t", b"good")
            await until(lambda: ears.heard and ears.heard[-1] == b"good")
        assert [line["event"] for line in lines] == ["message handler failed"]
        await subscription.unsubscribe()


async def test_an_ended_subscription_hears_no_more(buses: Any) -> None:
    one = await buses()
    ended, other = Ears(), Ears()
    subscription = await one.subscribe("t", ended)
    await one.subscribe("t", other)
    one.publish("t", b"1")
    await until(lambda: ended.heard and other.heard)
    await subscription.unsubscribe()
    await subscription.unsubscribe()
    one.publish("t", b"2")
    await until(lambda: len(other.heard) == 2)
    assert ended.heard == [b"1"]


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_after_nats_was_away_all_goes_on(buses: Any, nats_server: Nats, end: str) -> None:
    one = await buses()
    ears, restored = Ears(), 0

    async def broken() -> None:
        raise ValueError("x")

    async def callback() -> None:
        nonlocal restored
        restored += 1

    one.on_restored(broken)
    one.on_restored(callback)
    await one.subscribe("t", ears)
    one.publish("t", b"before")
    await until(lambda: ears.heard)
    await getattr(nats_server, end)()
    await until(lambda: not one.connected)
    assert one.publish("t", b"lost") is False
    assert await one.flush(0.2) is False
    late = Ears()
    await asyncio.wait_for(one.subscribe("t", late), 5)
    assert restored == 0
    await nats_server.start()
    await until(lambda: one.connected and restored)
    assert await one.flush(5)
    assert one.publish("t", b"after")
    await until(lambda: ears.heard[-1] == b"after" and late.heard == [b"after"])
    assert ears.heard == [b"before", b"after"]
    assert restored == 1


async def test_a_start_without_nats_goes_on_behind(nats_server: Nats) -> None:
    await nats_server.kill()
    one = Bus(nats_server.url, "late")
    restored = asyncio.Event()

    async def callback() -> None:
        restored.set()

    one.on_restored(callback)
    began = time.monotonic()
    await one.start(patience_s=0.2)
    assert time.monotonic() - began < 3
    assert not one.connected
    ears, ended = Ears(), Ears()
    await one.subscribe("t", ears)
    subscription = await one.subscribe("t", ended)
    await subscription.unsubscribe()
    await nats_server.start()
    await asyncio.wait_for(restored.wait(), 15)
    assert await one.flush(5)
    assert one.publish("t", b"x")
    await until(lambda: ears.heard == [b"x"])
    assert ended.heard == []
    await one.close()


async def test_a_burst_is_kept_while_its_handler_is_busy(buses: Any) -> None:
    sender, listener = await buses(), await buses()
    heard: list[int] = []
    go = asyncio.Event()

    async def handler(subject: str, body: bytes) -> None:
        await go.wait()
        heard.append(int(body[:8]))

    await listener.subscribe("burst", handler)
    await listener.flush(5)
    for number in range(20_000):
        assert sender.publish("burst", b"%08d" % number + b"x" * 1_000)
    assert await sender.flush(20)
    assert await listener.flush(20)
    go.set()
    await until(lambda: len(heard) == 20_000)
    assert heard == list(range(20_000))


async def test_what_had_to_be_dropped_is_reported(buses: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus, "_UNHANDLED_BYTES", 100_000)
    sender, listener = await buses(), await buses()
    restored, go, heard = asyncio.Event(), asyncio.Event(), []

    async def missed() -> None:
        restored.set()

    async def handler(subject: str, body: bytes) -> None:
        await go.wait()
        heard.append(int(body[:8]))

    listener.on_restored(missed)
    await listener.subscribe("burst", handler)
    await listener.flush(5)
    for number in range(200):
        sender.publish("burst", b"%08d" % number + b"x" * 1_000)
    await asyncio.wait_for(restored.wait(), 10)
    assert await listener.flush(5)
    go.set()
    await until(lambda: len(heard) > 90)
    sender.publish("burst", b"%08d" % 999)
    await until(lambda: heard[-1] == 999)
    assert heard[:90] == list(range(90))
    assert heard == sorted(heard)
    assert len(heard) < 200


async def test_a_message_that_nats_does_not_take_is_no_trouble_for_others(buses: Any) -> None:
    one = await buses()
    ears = Ears()
    await one.subscribe("t", ears)
    one.publish("t", b"x" * (9 * 1024 * 1024))
    one.publish("t", b"small")
    await until(lambda: ears.heard == [b"small"])


async def test_a_server_that_says_why_it_hangs_up_is_come_back_to(fake: FakeServer) -> None:
    one = Bus(await fake.start(), "u")
    restored = asyncio.Event()

    async def callback() -> None:
        restored.set()

    one.on_restored(callback)
    await one.start()
    await one.subscribe("a.b", Ears())
    assert await one.flush(5)
    for number in (2, 3):
        restored.clear()
        fake.say("-ERR 'Slow Consumer'")
        await asyncio.wait_for(restored.wait(), 10)
        await until(lambda: one.connected)
        assert await one.flush(5)
        assert (fake.connections, fake.subjects) == (number, ["a.b"] * number)
    await one.close()


async def test_a_late_answer_to_a_flush_does_not_deafen(fake: FakeServer) -> None:
    one = Bus(await fake.start(), "u")
    await one.start()
    fake.answers = False
    assert await one.flush(0.05) is False
    canceled = asyncio.create_task(one.flush(5))
    await asyncio.sleep(0)
    canceled.cancel()
    fake.answers = True
    for writer in fake._writers:
        writer.write(b"PONG\r\nPONG\r\n")
    for _ in range(3):
        assert await one.flush(5)
    assert fake.connections == 1
    await one.close()


async def test_too_much_that_waits_is_refused(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus, "WAITING_BYTES", 1_000_000)
    one = Bus(await fake.start(), "u")
    await one.start()
    fake.reads = False
    body = b"x" * 100_000
    taken = 0
    while one.publish("t", body):
        taken += 1
        await asyncio.sleep(0)
        assert taken < 2_000
    assert one.connected
    began = time.monotonic()
    await asyncio.wait_for(one.close(), 8)
    assert time.monotonic() - began < 6


async def test_close_does_not_wait_for_handlers_or_a_dead_server(buses: Any, nats_server: Nats) -> None:
    one = Bus(nats_server.url, "u")
    await one.start()
    begun = asyncio.Event()

    async def stuck(subject: str, body: bytes) -> None:
        begun.set()
        await asyncio.Event().wait()

    await one.subscribe("t", stuck)
    one.publish("t", b"")
    await asyncio.wait_for(begun.wait(), 5)
    began = time.monotonic()
    await asyncio.wait_for(one.close(), 5)
    assert time.monotonic() - began < 2
    assert not one.connected
    away = await buses()
    await nats_server.kill()
    await until(lambda: not away.connected)
    await asyncio.wait_for(away.close(), 5)
    never = Bus(nats_server.url, "u")
    await never.start(patience_s=0.05)
    await asyncio.wait_for(never.close(), 5)
    await Bus(nats_server.url, "u").close()


async def test_close_sends_what_waits(buses: Any, nats_server: Nats) -> None:
    listener = await buses()
    ears = Ears()
    await listener.subscribe("t", ears)
    await listener.flush(5)
    one = Bus(nats_server.url, "u")
    await one.start()
    for number in range(1_000):
        one.publish("t", b"%d" % number)
    await one.close()
    await until(lambda: len(ears.heard) == 1_000)
    assert one.publish("t", b"") is False
