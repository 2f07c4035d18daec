"""CreateSession, ListSessions, GetSession, UpdateSession, DeleteSession over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from libs.protocol.actions import CreateSession, DeleteSession, GetSession, ListSessions, UpdateSession
from libs.protocol.responses import ListSessionsResponse
from libs.protocol.sessions import SessionModelOverride
from libs.protocol.ws import WsSessionChange
from tests.support.kit import NOWHERE, World, refused, until


async def page(client: Any, **fields: Any) -> ListSessionsResponse:
    return await client.call(ListSessions(**fields))


async def test_a_new_session_is_idle_and_empty(world: World) -> None:
    owner = await world.owner()
    session_id = await owner.session("  Plans  ")
    answered = await owner.client.session(session_id)
    session = answered.session
    assert (session.id, session.agent_id, session.account) == (session_id, owner.agent, owner.client.account)
    assert (session.title, session.status, session.plan, session.model_override) == ("Plans", "idle", UNSET, UNSET)
    assert answered.events == []
    assert "Be brief." in answered.system_prompt_markdown


@pytest.mark.parametrize("title", ["untitled session", "Untitled Sub-Session", "NEW CHAT"])
async def test_a_title_that_says_nothing_is_none(world: World, title: str) -> None:
    owner = await world.owner()
    assert (await owner.client.session(await owner.session(title))).session.title is UNSET


async def test_creation_is_idempotent_and_its_rules_hold(world: World) -> None:
    owner = await world.owner()
    make = CreateSession(agent_id=owner.agent, title="Once", client_request_id="s-1")
    first = (await owner.client.call(make)).session_id
    assert (await owner.client.call(make)).session_id == first
    with refused(409, "Client request ID payload mismatch"):
        await owner.client.create_session(owner.agent, "Another", "s-1")
    for title, message in (("", "Session title is required"), ("x" * 257, "Session title is too large")):
        with refused(400, message):
            await owner.client.create_session(owner.agent, title)
    with refused(404, "Agent not found"):
        await owner.client.create_session(NOWHERE)


async def test_who_may_read_talk_and_change(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    reader, writer, stranger = await world.member(owner, "reader"), await world.member(owner, "writer"), world.client()
    rename = UpdateSession(session_id=session, title="Renamed")
    assert (await reader.session(session)).session.id == session
    assert await writer.create_session(owner.agent)
    assert (await writer.call(rename)).session.title == "Renamed"
    with refused(403, "Chat access is required"):
        await reader.create_session(owner.agent)
    for action in (rename, DeleteSession(session_id=session)):
        with refused(403, "Write access is required"):
            await reader.call(action)
    with refused(404, "Agent not found"):
        await stranger.create_session(owner.agent)
    for action in (GetSession(session_id=session), rename, DeleteSession(session_id=session)):
        with refused(404, "Session not found"):
            await stranger.call(action)

    await owner.client.call("SetAgentPublicRead", agentId=owner.agent, publicRead=True)
    assert (await stranger.session(session)).session.id == session
    with refused(403, "Chat access is required"):
        await stranger.create_session(owner.agent)
    await owner.client.call("SetAgentPublicChat", agentId=owner.agent, publicChat=True)
    assert await stranger.create_session(owner.agent)
    with refused(403, "Write access is required"):
        await stranger.call(rename)


async def test_pages_of_sessions_join_without_gap_or_double(world: World) -> None:
    owner = await world.owner()
    made = [await owner.session(f"Session {number}") for number in range(7)]
    seen: list[str] = []
    cursor: Any = UNSET
    while True:
        got = await page(owner.client, limit=3, cursor=cursor)
        seen += [session.id for session in got.sessions]
        assert [agent.id for agent in got.agents] == [owner.agent]
        if got.next_cursor is UNSET:
            break
        assert len(got.sessions) == 3
        cursor = got.next_cursor
    assert sorted(seen) == sorted(made)
    assert len(set(seen)) == len(seen)
    stamps = {session.id: (session.updated_at, session.id) for session in (await page(owner.client)).sessions}
    assert seen == sorted(seen, key=lambda session: stamps[session], reverse=True)


async def test_a_listing_of_an_agent_holds_its_sessions_only(world: World) -> None:
    owner = await world.owner()
    other = await owner.client.create_agent(owner.definition(name="Other"))
    here, there = await owner.session(), await owner.client.create_session(other)
    assert [s.id for s in (await page(owner.client, agent_id=owner.agent)).sessions] == [here]
    assert {s.id for s in (await page(owner.client)).sessions} == {here, there}
    assert [s.id for s in (await page(owner.client, parent_session_id=here)).sessions] == []
    with refused(404, "Agent not found"):
        await page(world.client(), agent_id=owner.agent)
    with refused(404, "Session not found"):
        await page(world.client(), parent_session_id=here)
    assert (await page(world.client())).sessions == []
    joined = await page(await world.member(owner, "reader"))
    assert [s.id for s in joined.sessions] == [here]


@pytest.mark.parametrize(
    ("cursor", "message"),
    [
        ([], "Session cursor must be an object"),
        ({"updatedBefore": 0, "idBefore": "x"}, "Cursor updatedBefore must be a positive integer"),
        ({"updatedBefore": 1}, "Cursor idBefore is required"),
    ],
)
async def test_a_bad_cursor_is_refused(world: World, cursor: Any, message: str) -> None:
    owner = await world.owner()
    with refused(400, message):
        await owner.client.send({"_": "ListSessions", "cursor": cursor})


@pytest.mark.parametrize(("limit", "count"), [(0, 1), (2.9, 2), (10_000, 3), ("many", 3)])
async def test_a_limit_is_clamped(world: World, limit: Any, count: int) -> None:
    owner = await world.owner()
    for _ in range(3):
        await owner.session()
    assert len((await owner.client.send({"_": "ListSessions", "limit": limit}))["sessions"]) == count


async def test_get_session_goes_on_after_a_seq(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    await owner.client.message(session, "one")
    await owner.client.message(session, "two")
    assert [e.seq for e in (await owner.client.session(session)).events] == [1, 2, 3, 4]
    assert [e.seq for e in (await owner.client.session(session, 3)).events] == [4]
    assert [e.seq for e in (await owner.client.session(session, 9)).events] == []
    for bad in (-1, 1.5, "1"):
        with refused(400, "afterSeq must be a non-negative integer"):
            await owner.client.send({"_": "GetSession", "sessionId": session, "afterSeq": bad})


async def test_a_users_title_wins_and_an_override_is_set_used_and_cleared(world: World) -> None:
    owner = await world.owner()
    session = await owner.session("Given")
    override = SessionModelOverride(provider="scripted", model="other-model")
    changed = (await owner.client.call(UpdateSession(session_id=session, model_override=override))).session
    assert (changed.title, changed.model_override) == ("Given", override)
    await owner.client.message(session, "hi")
    assert owner.provider.requests[-1]["model"] == "other-model"
    cleared = (await owner.client.call(UpdateSession(session_id=session, model_override=None, title="Mine"))).session
    assert (cleared.title, cleared.model_override) == ("Mine", UNSET)
    await owner.client.message(session, "hi again")
    assert owner.provider.requests[-1]["model"] == "scripted-1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "Nothing to update: provide a title or a model override"),
        ({"title": " "}, "Session title is required"),
        ({"title": "x" * 257}, "Session title is too large"),
        ({"modelOverride": "m"}, "Model override must be a provider/model object or null"),
        ({"modelOverride": {"model": "m"}}, "Model provider is required"),
        ({"modelOverride": {"provider": "scripted"}}, "Model is required"),
        ({"modelOverride": {"provider": "none", "model": "m"}}, "Model provider not found"),
        (
            {"modelOverride": {"provider": "scripted", "model": "m", "reasoningLevel": "most"}},
            "Reasoning level is invalid",
        ),
    ],
)
async def test_a_bad_update_is_refused(world: World, change: dict[str, Any], message: str) -> None:
    owner = await world.owner()
    session = await owner.session()
    with refused(400, message):
        await owner.client.send({"_": "UpdateSession", "sessionId": session, **change})


async def test_a_deleted_session_is_gone_and_its_agent_stays(world: World) -> None:
    owner = await world.owner()
    session, kept = await owner.session(), await owner.session()
    await owner.client.message(session, "hi")
    answer = await owner.client.call(DeleteSession(session_id=session))
    assert (answer.session_id, answer.agent_id) == (session, owner.agent)
    for action in (GetSession(session_id=session), DeleteSession(session_id=session)):
        with refused(404, "Session not found"):
            await owner.client.call(action)
    assert [s.id for s in (await page(owner.client)).sessions] == [kept]


async def test_session_actions_send_their_hints_and_changes(world: World) -> None:
    owner = await world.owner()
    account = world.watch(owner.client, f"account/{owner.client.account}")
    await until(lambda: account.events, what="subscribed")
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    await watch.kind(WsSessionChange)
    await owner.client.call(UpdateSession(session_id=session, title="New title"))
    await watch.wait(lambda e: isinstance(e, WsSessionChange) and e.value.title == "New title", what="the title")
    await owner.client.call(DeleteSession(session_id=session))
    wanted = ["session-created", "session-updated", "session-deleted"]
    await until(lambda: account.hints() == wanted, what=f"{wanted}, not {account.hints()}")
