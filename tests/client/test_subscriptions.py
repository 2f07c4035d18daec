"""Subscriptions: one socket, resumed without gaps or doubles, whatever breaks."""

from __future__ import annotations

import asyncio

import pytest

from libs.client import ApiError, Client, ConnectionLost, Key, Subscription
from libs.protocol import WsEvent
from libs.protocol.ws import WsSessionAppend, WsSessionPartial, WsSubscribed
from tests.client.fakes import FakeServer, FakeSocket


async def take(subscription: Subscription, count: int) -> list[WsEvent]:
    async with asyncio.timeout(10):
        return [await anext(subscription) for _ in range(count)]


def seqs(events: list[WsEvent]) -> list[int]:
    return [e.event.seq for e in events if isinstance(e, WsSessionAppend)]


def deltas(events: list[WsEvent]) -> list[str]:
    return [
        e.patch.text_delta for e in events if isinstance(e, WsSessionPartial) and isinstance(e.patch.text_delta, str)
    ]


async def test_a_broken_socket_is_renewed_and_the_key_resumed() -> None:
    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        await socket.subscribed(key)
        first = (after or 0) + 1
        # The last one seen comes again, as a replay that overlaps would send it.
        for seq in range(max(1, first - 1), first + 2):
            await socket.append("s", seq)
        await socket.close(1001 if first < 3 else 1013)

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        async with client.subscribe("sessions/s") as events:
            got = await take(events, 9)
        assert seqs(got) == [1, 2, 3, 4, 5, 6]
        assert [s.asked for s in server.sockets[:3]] == [
            [("sessions/s", None)],
            [("sessions/s", 2)],
            [("sessions/s", 4)],
        ]


async def test_what_was_said_before_is_left_out() -> None:
    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        await socket.subscribed(key)
        await socket.append("s", 8)

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        async with client.subscribe("sessions/s", 7) as events:
            assert seqs(await take(events, 2)) == [8]
            assert events.seq == 8
        assert server.sockets[0].asked == [("sessions/s", 7)]


async def test_a_gap_is_filled_before_anything_after_it_is_seen() -> None:
    asked = 0

    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        nonlocal asked
        asked += 1
        await socket.subscribed(key)
        for seq in (1, 3, 4) if asked == 1 else range((after or 0) + 1, 6):
            await socket.append("s", seq)

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        async with client.subscribe("sessions/s") as events:
            assert seqs(await take(events, 7)) == [1, 2, 3, 4, 5]
        assert server.sockets[0].asked == [("sessions/s", None), ("sessions/s", 1)]


async def test_text_in_flight_goes_on_where_it_was() -> None:
    """The first delta of a new socket is the text so far: only what is new is handed on."""

    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        await socket.subscribed(key)
        if len(server.sockets) == 1:
            await socket.partial("s", "p", textDelta="Hel")
            await socket.partial("s", "p", textDelta="lo")
            await socket.close()
        elif len(server.sockets) == 2:
            await socket.partial("s", "p", textDelta="Hello")
            await socket.partial("s", "p", textDelta=", wor")
            await socket.close()
        else:
            await socket.partial("s", "p", textDelta="Hello, world")
            await socket.partial("s", "p", done=True)
            await socket.append("s", 1, "Hello, world")

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        async with client.subscribe("sessions/s") as events:
            got: list[WsEvent] = []
            while not seqs(got):
                got += await take(events, 1)
            assert deltas(got) == ["Hel", "lo", ", wor", "ld"]
            assert events.text("p") == ""


async def test_a_text_begun_anew_is_the_whole_new_text() -> None:
    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        await socket.subscribed(key)
        await socket.partial("s", "p", textDelta="Old" if len(server.sockets) == 1 else "New one")
        if len(server.sockets) == 1:
            await socket.close()

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        async with client.subscribe("sessions/s") as events:
            assert deltas(await take(events, 4)) == ["Old", "New one"]
            assert events.text("p") == "New one"


async def test_keys_share_a_socket_and_a_refusal_belongs_to_its_key() -> None:
    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        if key == "sessions/gone":
            await socket.error("Session not found")
            return
        await socket.subscribed(key)
        await socket.append(key.partition("/")[2], 1)

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        streams = [client.subscribe(f"sessions/{name}") for name in ("a", "gone", "b")]
        with pytest.raises(ApiError, match="404 Session not found"):
            await take(streams[1], 1)
        assert seqs(await take(streams[0], 2)) == [1]
        assert seqs(await take(streams[2], 2)) == [1]
        assert len(server.sockets) == 1


async def test_two_readers_of_a_key_each_see_each_event_once() -> None:
    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        await socket.subscribed(key)
        for seq in range((after or 0) + 1, 3):
            await socket.append("s", seq)

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        first = client.subscribe("sessions/s")
        assert seqs(await take(first, 3)) == [1, 2]
        second = client.subscribe("sessions/s")
        assert seqs(await take(second, 3)) == [1, 2]
        assert isinstance((await take(first, 1))[0], WsSubscribed)
        await server.sockets[0].append("s", 3)
        assert seqs(await take(first, 1)) == seqs(await take(second, 1)) == [3]


async def test_the_socket_ends_with_its_last_subscription() -> None:
    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        await socket.subscribed(key)

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        async with client.subscribe("sessions/s") as events:
            await take(events, 1)
        async with asyncio.timeout(5):
            await server.sockets[0].gone.wait()
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_a_server_that_stays_away_ends_the_subscription() -> None:
    async with FakeServer() as server:
        url = server.url
    async with Client(url, Key.generate(), away_s=0.3) as client:
        with pytest.raises(ConnectionLost):
            await take(client.subscribe("sessions/s"), 1)


async def test_closing_wakes_a_reader_that_waits() -> None:
    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        await socket.subscribed(key)

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        events = client.subscribe("sessions/s")
        await take(events, 1)
        reader = asyncio.create_task(take(events, 1))
        await asyncio.sleep(0)
        await events.aclose()
        async with asyncio.timeout(5):
            with pytest.raises(StopAsyncIteration):
                await reader


async def test_events_of_other_keys_reach_who_subscribed_to_their_agent_or_account() -> None:
    hint = {
        "_": "change",
        "key": "account/z6Mk",
        "value": {"reason": "session-event", "agentId": "a", "sessionId": "s"},
    }
    session = {"id": "s", "account": "z6Mk", "agentId": "a", "status": "idle", "createdAt": 1, "updatedAt": 1}

    async def on_subscribe(socket: FakeSocket, key: str, after: int | None) -> None:
        await socket.subscribed(key)
        await socket.send({"_": "change", "key": "sessions/s", "value": session})
        if key == "account/z6Mk":
            await socket.append("s", 7)
            await socket.partial("s", "p", textDelta="x")
        await socket.send(hint)

    async with FakeServer() as server, Client(server.url, Key.generate()) as client:
        server.on_subscribe = on_subscribe
        names = [type(event).__name__ for event in await take(client.subscribe("agents/a"), 3)]
        assert names == ["WsSubscribed", "WsSessionChange", "WsAccountChange"]
        names = [type(event).__name__ for event in await take(client.subscribe("account/z6Mk"), 5)]
        assert names == ["WsSubscribed", "WsSessionChange", "WsSessionAppend", "WsSessionPartial", "WsAccountChange"]
        assert len(server.sockets) == 2
