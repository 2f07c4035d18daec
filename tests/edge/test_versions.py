"""Clients of older protocols: what they are shown, and when they are told to update."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libs import wire
from libs.protocol.sessions import SessionInfo
from services.edge.domain.shims import sessions_for
from tests.edge.conftest import World
from tests.edge.test_websocket import Room
from tests.edge.test_websocket import room as room

OLD, NEW = {"type": "document-comment", "resource": "hm://a"}, {"type": "comment-reply", "authors": ["z6Mk"]}
STARTED = {
    "triggerId": "t",
    "triggerName": "T",
    "firingId": "f",
    "activityKey": "k",
    "activitySummary": "s",
    "firedAt": 1,
}


def compound(*matched: Any) -> dict[str, Any]:
    conditions = [{"id": str(n), "source": source} for n, source in enumerate(matched)]
    source = {"type": "activity", "conditions": conditions}
    return {**STARTED, "source": source, "matchedConditions": conditions}


async def act(world: World, key: wire.Key, protocol: int | None, action: str, **fields: Any) -> Any:
    status, answer, _ = await world.post(wire.sign_envelope(key, {"_": action, **fields}, protocol=protocol))
    assert status == 200, answer
    return answer


@pytest.mark.parametrize(
    ("started", "shown"),
    [
        ({**STARTED, "source": OLD}, {**STARTED, "source": OLD}),
        ({**STARTED, "source": NEW}, None),
        (compound(OLD, NEW), {**STARTED, "source": OLD}),
        (compound(NEW, OLD), None),
        (compound(), None),
        ({**STARTED, "source": {"type": "activity"}}, None),
    ],
)
async def test_what_started_a_session(room: Room, started: dict[str, Any], shown: dict[str, Any] | None) -> None:
    world, key = room.world, room.key
    room.session.started_by_trigger = json.dumps(started).encode()
    for protocol in (None, 1, 2):
        one = await act(world, key, protocol, "GetSession", sessionId=room.session.id)
        assert one["session"].get("startedByTrigger") == shown
    for protocol in (3, 4):
        one = await act(world, key, protocol, "GetSession", sessionId=room.session.id)
        assert one["session"]["startedByTrigger"] == started


def test_lists_are_shown_alike() -> None:
    session = SessionInfo(id="s", account="a", agent_id="g", status="idle", created_at=1, updated_at=1)
    session.started_by_trigger = compound(OLD)  # pyright: ignore[reportAttributeAccessIssue]
    assert sessions_for(3, [session]) == [session]
    (shown,) = sessions_for(2, [session])
    assert shown.started_by_trigger == {**STARTED, "source": OLD} and session.started_by_trigger == compound(OLD)


async def test_too_old(room: Room) -> None:
    room.world.edge._routes._dispatcher._verifier._min_protocol = 3
    for protocol in (None, 1, 2):
        status, answer, headers = await room.world.post(
            wire.sign_envelope(room.key, {"_": "ListAgents"}, protocol=protocol)
        )
        assert (status, answer["code"], headers["x-agents-protocol"]) == (426, "protocol_too_old", "3")
        assert "protocol 3 or newer" in answer["message"]
    assert (await room.world.post(wire.encode({"protocol": 2})))[0] == 426, "before anything else is looked at"
    assert (await room.world.post(wire.encode({"protocol": 3})))[0] == 401
    socket = await room.world.socket()
    await socket.ws.send_bytes(wire.sign_envelope(room.key, {"_": "Subscribe", "key": room.session_key}, protocol=2))
    refused = await socket.wait(lambda e: e["_"] == "error")
    assert refused["code"] == "protocol_too_old"
    assert (await room.world.subscribe(socket, room.key, room.session_key))["_"] == "subscribed"


@pytest.mark.parametrize(
    ("started", "shown"),
    [
        ({**STARTED, "source": OLD}, {**STARTED, "source": OLD}),
        (compound(OLD, NEW), {**STARTED, "source": OLD}),
        (compound(NEW, OLD), None),
        ({**STARTED, "source": NEW}, None),
    ],
)
async def test_sockets_show_what_started_a_session_alike(
    room: Room, started: dict[str, Any], shown: dict[str, Any] | None
) -> None:
    """In the replay and live, whichever version the other sockets on the same session speak."""
    room.session.started_by_trigger = json.dumps(started).encode()
    expected = {None: shown, 1: shown, 2: shown, 3: started, 4: started}
    sockets = {}
    for protocol in expected:
        sockets[protocol] = socket = await room.world.socket()
        frame = wire.sign_envelope(room.key, {"_": "Subscribe", "key": room.session_key}, protocol=protocol)
        await socket.ws.send_bytes(frame)
        await socket.wait(lambda e: e["_"] == "change")
    room.change(title="live")
    for protocol, socket in sockets.items():
        await socket.wait(lambda e: e["_"] == "change" and e["value"].get("title") == "live")
        changes = [e["value"] for e in socket.of("change")]
        assert [change.get("startedByTrigger") for change in changes] == [expected[protocol]] * len(changes)
        assert len(changes) >= 2
