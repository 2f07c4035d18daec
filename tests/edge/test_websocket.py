"""The WebSocket of the edge: handshake, keys, replay joined with live events, members, limits."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest
import redis.asyncio
from seed.events.v1 import events_pb2 as ev
from seed.runs.v1 import runs_pb2
from seed.sessions.v1 import types_pb2

from libs import events, wire
from tests.edge.conftest import Socket, Start, World, until


class Room:
    """An owner with an agent and a session."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.key = wire.Key.generate()
        self.account = wire.account_id(self.key.principal)
        self.agent = world.sessions.add_agent(self.account)
        self.session = world.sessions.add_session(self.agent)

    @property
    def session_key(self) -> str:
        return f"sessions/{self.session.id}"

    async def watch(self, *keys: str, key: wire.Key | None = None, **fields: Any) -> Socket:
        socket = await self.world.socket()
        for name in keys:
            answer = await self.world.subscribe(socket, key or self.key, name, **fields)
            assert answer["_"] == "subscribed", answer
        return socket

    def append(self, *, tell: bool = True) -> types_pb2.SessionEvent:
        e = self.world.sessions.append(self.session.id)
        if tell:
            self.world.tell(events.session_appended(self.account, self.agent.id, e))
        return e

    def change(self, *, tell: bool = True, **fields: Any) -> types_pb2.Session:
        s = self.world.sessions.change(self.session.id, **fields)
        if tell:
            self.world.tell(events.session_changed(s))
        return s

    def partial(self, name: str, offset: int, text: str, **more: Any) -> None:
        p = ev.SessionPartial(session_id=self.session.id, partial_id=name, offset=offset, text_delta=text, **more)
        self.world.tell(events.session_partial(self.account, self.agent.id, p))

    def agent_changed(self, **fields: Any) -> None:
        self.agent.version += 1
        for name, value in fields.items():
            setattr(self.agent, name, value)
        self.world.tell(events.agent_changed(self.agent))

    def hint(self, reason: str, session_id: str = "", only: tuple[str, ...] = ()) -> None:
        message = events.account_hint(self.account, reason, agent_id=self.agent.id, session_id=session_id, only=only)
        self.world.tell(message)

    def member(self, role: str) -> wire.Key:
        key = wire.Key.generate()
        self.world.sessions.members[wire.account_id(key.principal), self.agent.id] = role
        return key


@pytest.fixture
def room(world: World) -> Room:
    return Room(world)


def seqs(socket: Socket, start: int = 0) -> list[int]:
    return [e["event"]["seq"] for e in socket.of("append", start)]


def texts(socket: Socket) -> str:
    return "".join(e["patch"].get("textDelta", "") for e in socket.of("appendPartial"))


def error(message: str) -> dict[str, str]:
    return {"_": "error", "message": message}


# Handshake and frames


async def test_connected_then_subscribed(room: Room) -> None:
    socket = await room.watch(f"account/{room.account}")
    assert [set(e) for e in socket.events] == [{"_", "connectedAt"}, {"_", "key", "accountId"}]
    assert socket.ws._response.headers["x-agents-protocol"] == "3"


async def test_without_an_upgrade(world: World) -> None:
    async with world.http.get(world.url + "/agents/ws") as r:
        assert r.status == 400 and await r.text() == "WebSocket upgrade failed"


@pytest.mark.parametrize("frame", [b"", b"\xff", "hello", "[300]", "[]", "{}", "5"])
async def test_garbage(room: Room, frame: bytes | str) -> None:
    socket = await room.world.socket()
    await (socket.ws.send_bytes(frame) if isinstance(frame, bytes) else socket.ws.send_str(frame))
    assert await socket.wait(lambda e: e["_"] == "error") == error("Invalid CBOR request")
    assert (await room.world.subscribe(socket, room.key, room.session_key))["_"] == "subscribed"


async def test_a_frame_as_json_array(room: Room) -> None:
    socket = await room.world.socket()
    body = wire.sign_envelope(room.key, {"_": "Subscribe", "key": room.session_key})
    await socket.ws.send_str(msgspec.json.encode(list(body)).decode())
    await socket.wait(lambda e: e["_"] == "subscribed")


@pytest.mark.parametrize(
    "action, message",
    [
        ({"_": "ListAgents"}, "Expected Subscribe action"),
        ({"_": "Subscribe"}, "Subscription key is not authorized"),
        ({"_": "Subscribe", "key": "agents/a/b"}, "Subscription key is not authorized"),
        ({"_": "Subscribe", "key": "account/other"}, "Subscription key is not authorized"),
        ({"_": "Subscribe", "key": "agents/none"}, "Agent not found"),
        ({"_": "Subscribe", "key": "sessions/none"}, "Session not found"),
        ({"_": "Subscribe", "key": "runs/none"}, "Run not found"),
    ],
)
async def test_refusals(world: World, action: dict[str, Any], message: str) -> None:
    socket = await world.socket()
    await socket.ws.send_bytes(wire.sign_envelope(wire.Key.generate(), action))
    assert await socket.wait(lambda e: e["_"] == "error") == error(message)


async def test_after_seq_is_checked_for_keys_that_have_one(room: Room) -> None:
    socket = await room.world.socket()
    for bad in (-1, 1.5, "1", None, True):
        answer = await room.world.subscribe(socket, room.key, room.session_key, afterSeq=bad)
        assert answer == error("afterSeq must be a non-negative integer")
        answer = await room.world.subscribe(socket, room.key, f"agents/{room.agent.id}", afterSeq=bad)
        assert answer["_"] == "subscribed"


async def test_a_socket_belongs_to_one_account(room: Room) -> None:
    other = Room(room.world)
    socket = await room.world.socket()
    assert (await room.world.subscribe(socket, other.key, "agents/none"))["_"] == "error"
    await room.world.subscribe(socket, room.key, room.session_key)
    answer = await room.world.subscribe(socket, other.key, other.session_key)
    assert answer == error("WebSocket account switch is not allowed")


# Replay and live


async def test_replay_then_live(room: Room) -> None:
    for _ in range(3):
        room.append(tell=False)
    socket = await room.watch(room.session_key, afterSeq=1)
    room.append()
    room.change(status="streaming")
    await socket.wait(lambda e: e["_"] == "change" and e["value"]["status"] == "streaming")
    kinds = [(e["_"], e.get("event", {}).get("seq")) for e in socket.events]
    assert kinds == [
        ("connected", None),
        ("subscribed", None),
        ("change", None),
        ("append", 2),
        ("append", 3),
        ("append", 4),
        ("change", None),
    ]
    assert socket.events[5]["event"]["event"] == {"type": "message"}


async def test_subscribing_again_replays_and_keeps_one_stream(room: Room) -> None:
    room.append(tell=False)
    socket = await room.watch(room.session_key, room.session_key)
    room.append()
    await until(lambda: len(seqs(socket)) == 3)
    room.append()
    await socket.wait(lambda e: e["_"] == "append" and e["event"]["seq"] == 3)
    assert seqs(socket) == [1, 1, 2, 3]


async def test_a_lost_event_is_fetched_when_the_next_comes(room: Room) -> None:
    socket = await room.watch(room.session_key)
    room.append(tell=False)
    room.append()
    await until(lambda: len(seqs(socket)) == 2)
    assert seqs(socket) == [1, 2]


async def test_a_lost_event_is_noticed_by_its_head(start: Start) -> None:
    room = Room(await start(heads_interval_ms=50))
    socket = await room.watch(room.session_key)
    room.append(tell=False)
    room.change(tell=False, status="error")
    await socket.wait(lambda e: e["_"] == "change" and e["value"]["status"] == "error")
    assert seqs(socket) == [1]


async def test_many_join_while_events_come(room: Room) -> None:
    async def talk() -> None:
        for _ in range(30):
            room.append()
            await asyncio.sleep(0)

    sockets, _ = await asyncio.gather(asyncio.gather(*(room.watch(room.session_key) for _ in range(8))), talk())
    for socket in sockets:
        await until(lambda socket=socket: len(seqs(socket)) >= 30)
        assert seqs(socket) == list(range(1, 31))


async def test_text_in_flight_for_whoever_joins_in_mid_turn(room: Room) -> None:
    valkey = redis.asyncio.Redis.from_url(room.world.stores.redis_url)
    await valkey.hset(f"seed:partial:{room.session.id}", "p1", "Grüße aus")  # pyright: ignore[reportGeneralTypeIssues]
    socket = await room.watch(room.session_key)
    room.partial("p1", 5, " aus der")
    room.partial("p1", 13, " Ferne", usage=b'{"total":1}')
    room.partial("p1", 19, "", done=True)
    await socket.wait(lambda e: e["_"] == "appendPartial" and e["patch"].get("done"))
    assert texts(socket) == "Grüße aus der Ferne"
    assert [e["patch"]["usage"] for e in socket.of("appendPartial") if "usage" in e["patch"]] == [{"total": 1}]
    await valkey.aclose()


async def test_runs(room: Room) -> None:
    run = runs_pb2.Run(
        id="r1", account=room.account, root_run_id="r1", kind="workflow", agent_id=room.agent.id, origin="user",
        title="T", status="running", child_run_count=2, created_at=1, updated_at=1, version=1,
    )  # fmt: skip
    entry = runs_pb2.JournalEntry(run_id="r1", seq=1, entry=b'{"kind":"log"}', created_at=2)
    room.world.runs.runs["r1"] = run
    room.world.runs.journals["r1"] = [entry]
    socket = await room.watch("runs/r1")
    await socket.wait(lambda e: e["_"] == "append")
    assert [e["_"] for e in socket.events[1:]] == ["subscribed", "change", "append"]
    assert "childRunCount" not in socket.events[2]["value"]
    assert socket.events[3] == {
        "_": "append", "key": "runs/r1", "runId": "r1", "seq": 1, "entry": {"kind": "log"}, "createdAt": 2,
    }  # fmt: skip
    done = runs_pb2.Run()
    done.CopyFrom(run)
    done.version, done.status, done.error = 2, "failed", b'{"code":"x","message":"y"}'
    room.world.tell(events.run_changed(done))
    room.world.tell(events.run_changed(run))
    changed = await socket.wait(lambda e: e["_"] == "change" and e["value"]["status"] == "failed")
    assert changed["value"]["error"] == {"code": "x", "message": "y"}
    room.world.runs.journals["r1"] += [
        runs_pb2.JournalEntry(run_id="r1", seq=seq, entry=b"{}", created_at=3) for seq in (2, 3)
    ]
    body = ev.Event(id="e", account=room.account, agent_id=room.agent.id)
    body.run_appended.CopyFrom(ev.RunAppended(root_run_id="r1", entry=room.world.runs.journals["r1"][2]))
    subject = events.event_subject(room.account, room.agent.id, "run_appended")
    room.world.tell((subject, body.SerializeToString()))
    await until(lambda: len(socket.of("append")) == 3)
    assert [e["seq"] for e in socket.of("append")] == [1, 2, 3]


# Fan-out


async def test_each_event_once_however_many_keys_match(room: Room) -> None:
    keys = (f"account/{room.account}", f"agents/{room.agent.id}", room.session_key)
    socket = await room.watch(*keys)
    (sub,) = room.world.edge._hub._subs[room.session_key]
    await until(lambda: not sub.busy and socket.of("change"))
    begin = len(socket.events)
    room.append()
    room.change()
    room.agent_changed()
    room.partial("p", 0, "x")
    room.hint("session-event", room.session.id)
    room.hint("last")
    await socket.wait(lambda e: e["_"] == "change" and e["value"].get("reason") == "last")
    got = [(e["_"], e["key"]) for e in socket.events[begin:]]
    assert got == [
        ("append", room.session_key),
        ("change", room.session_key),
        ("change", f"agents/{room.agent.id}"),
        ("appendPartial", room.session_key),
        ("change", f"account/{room.account}"),
        ("change", f"account/{room.account}"),
    ]
    assert socket.events[begin + 4]["value"] == {
        "reason": "session-event", "agentId": room.agent.id, "sessionId": room.session.id,
    }  # fmt: skip


async def test_the_agents_key_carries_no_session_events(room: Room) -> None:
    socket = await room.watch(f"agents/{room.agent.id}")
    room.append()
    room.partial("p", 0, "x")
    room.change()
    room.hint("session-event", room.session.id)
    await socket.wait(lambda e: e["_"] == "change" and e["key"].startswith("account/"))
    assert [e["key"] for e in socket.events[2:]] == [room.session_key, f"account/{room.account}"]


async def test_members_hear_on_their_own_account_with_their_role(room: Room) -> None:
    member = room.member("reader")
    own = wire.account_id(member.principal)
    socket = await room.watch(f"account/{own}", f"agents/{room.agent.id}", key=member)
    room.agent_changed()
    room.hint("agent-updated")
    hint = await socket.wait(lambda e: e["_"] == "change" and e["key"].startswith("account/"))
    assert hint["key"] == f"account/{own}"
    room.agent_changed(public_read=True, public_chat=True)
    await until(lambda: len([e for e in socket.of("change") if e["key"].startswith("agents/")]) == 2)
    roles = [e["value"]["accessRole"] for e in socket.of("change") if e["key"].startswith("agents/")]
    assert roles == ["reader", "chatter"]


async def test_public_readers(room: Room) -> None:
    room.agent.public_read = True
    key = wire.Key.generate()
    own = f"account/{wire.account_id(key.principal)}"
    socket = await room.watch(own, f"agents/{room.agent.id}", key=key)
    room.agent_changed()
    room.agent_changed(public_chat=True)
    room.append()
    room.hint("agent-updated")
    hint = await socket.wait(lambda e: e["_"] == "change" and e["key"].startswith("account/"))
    assert hint["key"] == f"account/{room.account}" and not socket.of("append")
    roles = [e["value"]["accessRole"] for e in socket.of("change") if e["key"].startswith("agents/")]
    assert roles == ["reader", "chatter"]


async def test_an_invited_account_hears_of_its_invitation_and_then_of_the_agent(room: Room) -> None:
    key = wire.Key.generate()
    own = wire.account_id(key.principal)
    socket = await room.watch(f"account/{own}", key=key)
    room.agent_changed()
    room.hint("agent-invites-changed", only=(own,))
    hint = await socket.wait(lambda e: e["_"] == "change")
    assert hint["value"]["reason"] == "agent-invites-changed" and hint["key"] == f"account/{own}"
    asked = room.world.sessions.calls["ListMemberships"]
    room.world.sessions.members[own, room.agent.id] = "writer"
    room.hint("agent-invites-changed", only=(own,))
    await until(lambda: room.world.sessions.calls["ListMemberships"] > asked)
    await until(lambda: room.world.edge._hub._feeds.members(room.agent.id))
    room.agent_changed()
    changed = await socket.wait(lambda e: e["_"] == "change" and e["key"].startswith("agents/"))
    assert changed["value"]["accessRole"] == "writer"


async def test_a_removed_member_hears_nothing_more(room: Room) -> None:
    member = room.member("writer")
    own = wire.account_id(member.principal)
    socket = await room.watch(f"account/{own}", f"agents/{room.agent.id}", room.session_key, key=member)
    watcher = await room.watch(room.session_key)
    del room.world.sessions.members[own, room.agent.id]
    room.hint("agent-collaborators-changed")
    room.hint("agent-invites-changed", only=(own,))
    hub = room.world.edge._hub
    await until(lambda: not hub._feeds.members(room.agent.id) and f"agents/{room.agent.id}" not in hub._subs)
    begin = len(socket.events)
    room.append()
    room.agent_changed()
    room.hint("agent-invites-changed", only=(own,))
    await watcher.wait(lambda e: e["_"] == "append")
    await socket.wait(lambda e: e["_"] == "change", begin)
    assert [e["value"].get("reason") for e in socket.events[begin:]] == ["agent-invites-changed"]
    assert await room.world.subscribe(socket, member, room.session_key) == error("Session not found")


async def test_deleted_sessions_are_silent(room: Room) -> None:
    socket = await room.watch(f"account/{room.account}", room.session_key)
    del room.world.sessions.sessions[room.session.id]
    room.hint("session-deleted", room.session.id)
    await socket.wait(lambda e: e["_"] == "change" and e["value"].get("reason") == "session-deleted")
    assert room.session_key not in room.world.edge._hub._subs


async def test_nothing_is_kept_of_closed_sockets(room: Room) -> None:
    member = room.member("writer")
    own = wire.account_id(member.principal)
    socket = await room.watch(f"account/{own}", f"agents/{room.agent.id}", room.session_key, key=member)
    hub = room.world.edge._hub
    assert hub._listeners._shared
    await socket.ws.close()
    await until(lambda: not hub._listeners._shared and not hub._subs and not hub._feeds._by_account)
    tracker = room.world.edge._tracker
    await until(lambda: not tracker._open)
    assert not tracker._addresses and not tracker._accounts and not hub._standings._by_agent


async def test_what_was_missed_while_the_bus_was_away(start: Start) -> None:
    room = Room(await start(heads_interval_ms=60_000))
    member = room.member("writer")
    own = wire.account_id(member.principal)
    socket = await room.watch(room.session_key)
    other = await room.watch(room.session_key, key=member)
    nats = room.world.stores.nats
    assert nats is not None
    await asyncio.to_thread(nats.stop, 1)
    room.append(tell=False)
    del room.world.sessions.members[own, room.agent.id]
    await asyncio.to_thread(nats.start)
    await until(lambda: len(seqs(socket)) == 1, 15)
    hub = room.world.edge._hub
    await until(lambda: [s.account for s in hub._subs[room.session_key]] == [room.account])
    assert not other.ws.closed


# Limits and life


async def test_too_many_subscriptions(start: Start) -> None:
    room = Room(await start(subscriptions_per_socket=1))
    socket = await room.watch(room.session_key)
    answer = await room.world.subscribe(socket, room.key, f"agents/{room.agent.id}")
    assert answer == error("Too many subscriptions")
    assert (await room.world.subscribe(socket, room.key, room.session_key))["_"] == "subscribed"


async def test_too_many_sockets(start: Start) -> None:
    room = Room(await start(sockets_per_account=1, sockets_per_address=2))
    await room.watch(room.session_key)
    socket = await room.world.socket()
    assert await room.world.subscribe(socket, room.key, room.session_key) == error("Too many sockets")
    await until(lambda: socket.ws.close_code == 1013)
    await until(lambda: len(room.world.edge._tracker._open) == 1)
    await room.world.socket()
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await room.world.socket()
    assert refused.value.status == 429


async def test_silent_sockets_are_pinged_and_closed(start: Start) -> None:
    world = await start(ping_interval_ms=80, pong_timeout_ms=80)
    answering = await world.socket()
    silent = await world.http.ws_connect(world.url + "/agents/ws", autoping=False)
    got = [await asyncio.wait_for(silent.receive(), 5) for _ in range(3)]
    assert [m.type for m in got] == [aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PING, aiohttp.WSMsgType.CLOSE]
    assert not answering.ws.closed


async def test_a_slow_socket_is_closed_and_others_go_on(start: Start) -> None:
    room = Room(await start(send_queue_bytes=100_000))
    reader, writer = await asyncio.open_connection("127.0.0.1", room.world.edge.port, limit=2_000)
    writer.write(
        b"GET /agents/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    body = wire.sign_envelope(room.key, {"_": "Subscribe", "key": room.session_key})
    writer.write(b"\x82\xfe" + len(body).to_bytes(2, "big") + bytes(4) + body)
    quick = await room.watch(room.session_key)
    hub = room.world.edge._hub
    await until(lambda: len(hub._subs[room.session_key]) == 2)
    payload = msgspec.json.encode({"type": "message", "content": "x" * 200_000})
    for _ in range(60):
        e = room.world.sessions.append(room.session.id, payload)
        room.world.tell(events.session_appended(room.account, room.agent.id, e))
    await until(lambda: len(seqs(quick)) == 60, 10)
    await until(lambda: len(hub._subs[room.session_key]) == 1, 10)
    assert seqs(quick) == list(range(1, 61))
    writer.close()


async def test_a_replay_larger_than_the_queue(start: Start) -> None:
    room = Room(await start(send_queue_bytes=50_000))
    payload = msgspec.json.encode({"type": "message", "content": "x" * 20_000})
    for _ in range(200):
        room.world.sessions.append(room.session.id, payload)
    socket = await room.world.socket()
    assert (await room.world.subscribe(socket, room.key, room.session_key))["_"] == "subscribed"
    room.append()
    await until(lambda: len(seqs(socket)) == 201, 10)
    assert seqs(socket) == list(range(1, 202))


async def test_shutdown(room: Room) -> None:
    socket = await room.watch(room.session_key)
    await room.world.edge.stop()
    await until(lambda: socket.ws.closed)
    assert socket.ws.close_code == 1001
