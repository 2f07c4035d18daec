"""MessageSession, StopSession, RetrySession over HTTP: what is logged, asked, answered, refused."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from libs.protocol.actions import MessageSession, RetrySession, StopSession
from libs.protocol.sessions import TextPart
from libs.stack.scripted import Calls, Fail, Say
from tests.support.kit import KEY, NOWHERE, World, refused, text, until

TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


async def test_a_message_is_logged_asked_and_answered(world: World) -> None:
    owner = await world.owner("Hi there.")
    session = await owner.session()
    part = TextPart(text="  Hello  ", client_message_id="m-1")
    answer = await owner.client.call(MessageSession(session_id=session, content=[part]))
    question, reply = await owner.events(session)
    assert (question.seq, reply.seq) == (1, 2)
    assert answer.assistant_event_id == reply.id
    assert question.event["content"] == question.event["rawMarkdown"] == "Hello"
    assert question.event["clientMessageId"] == "m-1"
    assert question.event["meta"] == {"accountId": owner.client.account, "signerId": owner.client.account}
    assert (reply.event["role"], reply.event["content"]) == ("assistant", "Hi there.")
    meta = reply.event["meta"]
    assert (meta["provider"], meta["model"]) == ("custom", "scripted-1")
    assert meta["usage"] == {"input": 5, "output": 5, "cacheRead": 0, "cacheWrite": 0, "total": 10}
    assert meta["durationMs"] >= 0
    [request] = owner.provider.requests
    assert request["messages"][0]["role"] in ("system", "developer")
    assert "Be brief." in str(request["messages"][0]["content"])
    assert "Hello" in str(request["messages"][-1]["content"])
    assert owner.provider.headers[0]["authorization"] == f"Bearer {KEY.decode()}"
    sent = TIME.sub("TIME", str(request["messages"][0]["content"]))
    assert TIME.sub("TIME", (await owner.client.session(session)).system_prompt_markdown) == sent
    assert await owner.status(session) == "idle"


async def test_what_was_said_is_replayed(world: World) -> None:
    owner = await world.owner()
    owner.provider.script.extend(["First answer.", "Second answer."])
    session = await owner.session()
    await owner.client.message(session, "one")
    await owner.client.message(session, "two")
    said = [(m["role"], str(m["content"])) for m in owner.provider.requests[1]["messages"][1:]]
    assert [role for role, _ in said] == ["user", "assistant", "user"]
    for (_, content), part in zip(said, ("one", "First answer.", "two"), strict=True):
        assert part in content


async def test_parts_become_events_and_context_goes_to_the_first(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    content = [*text("one", "two"), {"type": "context", "lines": ["Open: hm://x", "Second"]}]
    await owner.client.call("MessageSession", sessionId=session, content=content)
    one, two, _ = await owner.events(session)
    assert (one.event["content"], one.event["contextLines"]) == ("one", ["Open: hm://x", "Second"])
    assert (two.event["content"], two.event.get("contextLines")) == ("two", None)
    assert "Open: hm://x" in str(owner.provider.requests[0]["messages"])
    assert len(await owner.runs(session)) == 1


async def test_messages_are_idempotent_by_client_id_of_the_acting_account(world: World) -> None:
    owner = await world.owner()
    writer = await world.member(owner, "writer")
    session = await owner.session()
    first = await owner.client.message(session, "hi", "m-1")
    assert await owner.client.message(session, "hi", "m-1") == first
    with refused(409, "Client message ID payload mismatch"):
        await owner.client.message(session, "other", "m-1")
    assert await writer.message(session, "hi", "m-1") != first
    assert len(await owner.events(session)) == 4
    assert len(owner.provider.requests) == 2


async def test_equal_messages_at_once_are_one(world: World) -> None:
    owner = await world.owner(Say(("slow", "ly"), delay_s=0.05))
    session = await owner.session()
    send = MessageSession(session_id=session, content=[TextPart(text="hi")], client_message_id="race")
    results = await asyncio.gather(*(owner.client.call(send) for _ in range(6)), return_exceptions=True)
    assert {getattr(r, "status", 409) for r in results if isinstance(r, BaseException)} <= {409}
    answers = {r.assistant_event_id for r in results if not isinstance(r, BaseException)}
    await owner.at_rest(session)
    assert await owner.said(session) == [("user", "hi"), ("assistant", "slowly")]
    assert len(owner.provider.requests) == 1
    assert answers <= {(await owner.events(session))[1].id}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Message content is required"),
        ([], "Message content is required"),
        (text(" "), "Message content is required"),
        ([{"type": "context", "lines": []}], "Message content is required"),
        ([{"type": "image"}], "Only text message content is supported"),
        ([*text("x"), {"type": "context", "lines": "no"}], "Context lines must be an array of strings"),
        ([*text("x"), {"type": "context", "lines": ["l"] * 65}], "Too many context lines"),
        ([*text("x"), {"type": "context", "lines": ["l" * 2049]}], "Context line is too large"),
        (text("x" * 65_537), "Message content is too large"),
        ([*text("x"), {"type": "attachment", "id": "zz"}], "Invalid attachment id"),
    ],
)
async def test_bad_content_is_refused_and_leaves_nothing(world: World, content: Any, message: str) -> None:
    owner = await world.owner()
    session = await owner.session()
    with refused(400, message):
        await owner.client.send({"_": "MessageSession", "sessionId": session, "content": content})
    assert await owner.events(session) == []
    assert owner.provider.requests == []


async def test_who_may_talk(world: World) -> None:
    owner = await world.owner(Say(("wait", "."), gate=asyncio.Event()))
    session = await owner.session()
    reader, stranger = await world.member(owner, "reader"), world.client()
    actions = (
        MessageSession(session_id=session, content=[TextPart(text="hi")]),
        StopSession(session_id=session),
        RetrySession(session_id=session),
    )
    for action in actions:
        with refused(403, "Chat access is required"):
            await reader.call(action)
        with refused(404, "Session not found"):
            await stranger.call(action)
    with refused(404, "Session not found"):
        await owner.client.message(NOWHERE, "hi")


async def test_a_message_during_a_turn_waits_its_turn(world: World) -> None:
    gate = asyncio.Event()
    owner = await world.owner("Second answer.")
    owner.provider.script.append(Say(("First ", "answer."), gate=gate))
    writer = await world.member(owner, "writer")
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    first = asyncio.create_task(owner.client.message(session, "one"))
    await watch.streamed("First ")
    assert (await writer.message(session, "two")).assistant_event_id == ""
    assert await owner.said(session) == [("user", "one"), ("user", "two")]
    assert [run.status for run in await owner.runs(session)] == ["queued", "running"]
    gate.set()
    assert (await first).assistant_event_id
    await watch.message("Second answer.")
    await owner.at_rest(session)
    assert await owner.said(session) == [
        ("user", "one"),
        ("user", "two"),
        ("assistant", "First answer."),
        ("assistant", "Second answer."),
    ]
    handoff = str(owner.provider.requests[1]["messages"][-1]["content"])
    assert "concurrent_user_messages" in handoff
    assert "two" in handoff
    assert writer.account in handoff


async def test_stop_keeps_the_text_so_far_and_the_session_goes_on(world: World) -> None:
    owner = await world.owner("And on.")
    owner.provider.script.append(Say(("Partial", " never"), gate=asyncio.Event()))
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    turn = asyncio.create_task(owner.client.message(session, "go"))
    await watch.streamed("Partial")
    assert await owner.client.stop(session) is True
    await asyncio.wait({turn}, timeout=20)
    assert turn.done()
    assert (await owner.at_rest(session)).status == "idle"
    assert await owner.said(session) == [("user", "go"), ("assistant", "Partial")]
    assert [run.status for run in await owner.runs(session)] == ["canceled"]
    await owner.client.message(session, "next")
    assert (await owner.said(session))[-1] == ("assistant", "And on.")
    assert await owner.client.stop(session) is False


async def test_stop_before_any_text_says_so(world: World) -> None:
    owner = await world.owner(Say(("never",), gate=asyncio.Event(), gate_at=0))
    session = await owner.session()
    turn = asyncio.create_task(owner.client.message(session, "go"))
    await until(lambda: owner.provider.requests, what="the provider was asked")
    assert await owner.client.stop(session) is True
    await owner.at_rest(session)
    await asyncio.wait({turn}, timeout=20)
    assert await owner.said(session) == [("user", "go"), ("assistant", "Stopped.")]


async def test_a_failed_turn_says_why_and_can_be_tried_again(world: World) -> None:
    owner = await world.owner("Better now.")
    owner.provider.script.append(Fail(400, "the provider's own words"))
    session = await owner.session()
    with refused(502, re.compile("the provider's own words")):
        await owner.client.message(session, "hi")
    assert await owner.status(session) == "error"
    failure = (await owner.events(session))[-1].event
    assert failure["type"] == "error"
    assert "the provider's own words" in failure["message"]
    [failed] = await owner.runs(session)
    assert failed.status == "failed"

    answer = await owner.client.call(RetrySession(session_id=session))
    assert (await owner.said(session)) == [("user", "hi"), ("assistant", "Better now.")]
    assert answer.assistant_event_id == (await owner.events(session))[-1].id
    assert await owner.status(session) == "idle"
    [retried, _] = await owner.runs(session)
    assert (retried.status, retried.title) == ("succeeded", failed.title)
    with refused(400, "Nothing to retry: the latest run did not fail"):
        await owner.client.call(RetrySession(session_id=session))


async def test_retry_during_a_turn_is_refused(world: World) -> None:
    gate = asyncio.Event()
    owner = await world.owner(Say(("a", "b"), gate=gate))
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    turn = asyncio.create_task(owner.client.message(session, "hi"))
    await watch.streamed("a")
    with refused(409, "Session is already streaming"):
        await owner.client.call(RetrySession(session_id=session))
    gate.set()
    await turn


async def test_the_tool_loop_plans_and_sets_the_status(world: World) -> None:
    steps = [{"id": "a", "label": "Look", "status": "done"}, {"id": "b", "label": "Tell", "status": "skipped"}]
    owner = await world.owner("Done.")
    owner.provider.script.append(
        Calls(
            [("plan", {"title": "Two steps", "steps": steps}), ("status", {"title": "Looking", "description": "About"})]
        )
    )
    session = await owner.session()
    await owner.client.message(session, "work")
    info = (await owner.client.session(session)).session
    assert (info.title, info.description) == ("Looking", "About")
    kinds = [(e.event["type"], e.event.get("name")) for e in await owner.events(session)]
    assert kinds == [("message", None), ("tool_call", "status"), ("tool_result", "status"), ("message", None)]
    assert len(owner.provider.requests) == 2
    roles = [m["role"] for m in owner.provider.requests[1]["messages"]]
    assert roles.count("tool") == 2
    [run] = await owner.runs(session)
    assert run.usage and (run.usage.input, run.usage.output) == (10, 10)  # pyright: ignore[reportAttributeAccessIssue]
