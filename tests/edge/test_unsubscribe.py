"""Unsubscribe: a key falls silent, the others and the socket stay."""

from __future__ import annotations

from typing import Any

import pytest

from libs import wire
from tests.edge.conftest import Socket, Start, World, until
from tests.edge.test_websocket import Room, error, seqs
from tests.edge.test_websocket import room as room


async def unsubscribe(room: Room, socket: Socket, key: Any, signer: wire.Key | None = None) -> Any:
    start = len(socket.events)
    await socket.ws.send_bytes(wire.sign_envelope(signer or room.key, {"_": "Unsubscribe", "key": key}))
    return await socket.wait(lambda e: e["_"] in ("unsubscribed", "error"), start)


async def test_a_key_falls_silent(room: Room) -> None:
    other = room.world.sessions.add_session(room.agent)
    socket = await room.watch(room.session_key, f"sessions/{other.id}")
    watching = await room.watch(room.session_key)
    room.append()
    await socket.wait(lambda e: e["_"] == "append")
    assert await unsubscribe(room, socket, room.session_key) == {"_": "unsubscribed", "key": room.session_key}
    end = len(socket.events)
    room.append()
    await watching.wait(lambda e: e["_"] == "append" and e["event"]["seq"] == 2)
    room.change(title="new")
    await watching.wait(lambda e: e["_"] == "change" and e["value"].get("title") == "new")
    room.session = other
    room.append()
    await socket.wait(lambda e: e["_"] == "append" and e["key"] == f"sessions/{other.id}")
    assert {e["key"] for e in socket.events[end:]} == {f"sessions/{other.id}"}


async def test_subscribing_again_goes_on_where_it_was_left(room: Room) -> None:
    socket = await room.watch(room.session_key)
    room.append()
    await socket.wait(lambda e: e["_"] == "append")
    await unsubscribe(room, socket, room.session_key)
    room.append(tell=False)
    start = len(socket.events)
    await room.world.subscribe(socket, room.key, room.session_key, afterSeq=1)
    await socket.wait(lambda e: e["_"] == "append", start)
    assert seqs(socket, start) == [2]


@pytest.mark.parametrize("kind", ["account", "agents", "sessions"])
async def test_nothing_is_kept(room: Room, kind: str) -> None:
    key = {"account": f"account/{room.account}", "agents": f"agents/{room.agent.id}", "sessions": room.session_key}[
        kind
    ]
    socket = await room.watch(key)
    await unsubscribe(room, socket, key)
    hub: Any = room.world.edge._hub
    await until(lambda: not hub._listeners._shared and not hub._subs)
    assert not hub._feeds._by_account and not hub._standings._by_agent
    assert (await room.world.subscribe(socket, room.key, key))["_"] == "subscribed"


async def test_it_makes_room(start: Start) -> None:
    room = Room(await start(subscriptions_per_socket=1))
    socket = await room.watch(room.session_key)
    agent = f"agents/{room.agent.id}"
    assert await room.world.subscribe(socket, room.key, agent) == error("Too many subscriptions")
    await unsubscribe(room, socket, room.session_key)
    assert (await room.world.subscribe(socket, room.key, agent))["_"] == "subscribed"


async def test_what_is_not_watched_is_no_fault_and_what_is_no_key_is(room: Room) -> None:
    socket = await room.world.socket()
    stranger = wire.Key.generate()
    assert (await unsubscribe(room, socket, "sessions/none", stranger))["_"] == "unsubscribed"
    assert await unsubscribe(room, socket, "planets/x") == error("Subscription key is not authorized")
    assert (await room.world.subscribe(socket, room.key, room.session_key))["_"] == "subscribed", "it bound nobody"
    switched = error("WebSocket account switch is not allowed")
    assert await unsubscribe(room, socket, room.session_key, stranger) == switched
    room.append()
    await socket.wait(lambda e: e["_"] == "append")


async def test_over_http(world: World) -> None:
    status, answer = await world.act(wire.Key.generate(), "Unsubscribe", key="agents/a")
    assert (status, answer["message"]) == (400, "Unsubscribe is only supported over WebSocket")
