"""MessageSession and RetrySession over gRPC: what is stored, what a repeat gets, who waits behind whom."""

from __future__ import annotations

import asyncio

import pytest

from libs import wire
from tests.sessions.world import NIL, Client, World, said

pytestmark = pytest.mark.asyncio(loop_scope="session")

DIGEST = "cd" * 32
MISMATCH = "Client message ID payload mismatch"


async def conversation(world: World) -> tuple[Client, str]:
    c = world.account()
    return c, await c.session(await c.agent())


async def test_rules_store_nothing(world: World) -> None:
    c, session_id = await conversation(world)
    for content, text in (
        (b"", "Message content is required"),
        (wire.encode("hi"), "Message content is required"),
        (wire.encode([{"type": "image"}]), "Only text message content is supported"),
        (said("x" * 65537), "Message content is too large"),
    ):
        await c.fails(400, text, "MessageSession", session_id=session_id, content=content, client_message_id="m")
    for bad in ("", "x" * 257):
        wrong = "is too large" if bad else "is required"
        text = f"Client message ID {wrong}"
        await c.fails(400, text, "MessageSession", session_id=session_id, content=said("x"), client_message_id=bad)
    await c.fails(404, "Session not found", "MessageSession", session_id=NIL, content=b"")
    assert await c.events(session_id) == []
    assert not await world.sql("SELECT 1 FROM session_turns WHERE session_id = $1", session_id)
    await c.say(session_id, client_message_id="m")


async def test_several_texts_are_several_events_of_one_turn(world: World) -> None:
    c, session_id = await conversation(world)
    content = wire.encode([{"type": "text", "text": t} for t in ("first", "second\0")])
    ears = await world.ears(c.id)
    turn = (await c.say(session_id, content=content)).turn
    heard = await ears.until("session_appended", "session_appended", "session_changed", "session-event")
    assert [e.session_appended.event.id for e in heard[:2]] == list(turn.event_ids)
    assert [e["content"] for e in await c.events(session_id)] == ["first", "second\0"] and turn.title == "first"


async def test_attachments_are_looked_up_in_the_session(world: World) -> None:
    c, session_id = await conversation(world)
    other = await c.session((await c("ListAgents")).agents[0].id)
    await world.sql(
        "INSERT INTO attachments (session_id, id, name, mime_type, size, created_at) VALUES ($1, $2, 'a', NULL, 3, 7)",
        session_id,
        DIGEST,
    )
    content = wire.encode([{"type": "text", "text": "x"}, {"type": "attachment", "id": DIGEST}])
    await c.fails(404, f"Attachment not found: {DIGEST}", "MessageSession", session_id=other, content=content)
    await c.say(session_id, content=content)
    (event,) = await c.events(session_id)
    info = {"id": DIGEST, "sessionId": session_id, "name": "a", "size": 3, "createdAt": 7}
    assert event["attachments"] == [info]


async def test_a_message_behind_a_live_turn(world: World) -> None:
    c, session_id = await conversation(world)
    first = (await c.say(session_id, "one")).turn
    ears = await world.ears(c.id)
    second = (await c.say(session_id, "two")).turn
    assert not first.queued_behind and second.queued_behind
    await ears.until("session_appended", "session-event")
    await world.answer(first)
    heard = await ears.until("session_appended", "session-event")
    assert (await c.get(session_id)).status == "streaming", "another turn is live"
    assert (await world.begin(second.run_id)).queued_behind
    await world.finish(second.run_id, "late")
    *_, changed, _ = await ears.until("session_appended", "session_changed", "session-event")
    assert changed.session_changed.session.status == "idle" and heard[0].session_appended.event.seq == 3


async def test_messages_at_once_have_one_that_goes_first(world: World) -> None:
    c, session_id = await conversation(world)
    turns = [r.turn for r in await asyncio.gather(*(c.say(session_id, f"m{i}") for i in range(12)))]
    assert sum(not t.queued_behind for t in turns) == 1
    assert len(await c.events(session_id)) == 12
    for turn in turns:
        await world.answer(turn)
    assert (await c.get(session_id)).status == "idle"


async def test_a_repeat_while_the_turn_is_live_names_the_same_turn(world: World) -> None:
    c, session_id = await conversation(world)
    first = await c.say(session_id, client_message_id="m")
    assert await c.say(session_id, client_message_id=" m\n") == first
    assert len(await c.events(session_id)) == 1
    for session, content in ((session_id, said("hi ")), (session_id, said("hi", x=1))):
        await c.fails(409, MISMATCH, "MessageSession", session_id=session, content=content, client_message_id="m")
    other = await c.session((await c("ListAgents")).agents[0].id)
    await c.fails(409, MISMATCH, "MessageSession", session_id=other, content=said("hi"), client_message_id="m")
    assert (await c.get(other)).status == "idle" and len(await c.events(other)) == 0


async def test_a_repeat_after_the_turn_gets_its_outcome(world: World) -> None:
    c, session_id = await conversation(world)
    turn = (await c.say(session_id, client_message_id="m")).turn
    queued = (await c.say(session_id, client_message_id="q")).turn
    outcome = await world.answer(turn)
    await world.answer(queued)
    again = await c.say(session_id, client_message_id="m")
    assert not again.HasField("turn") and again.outcome == outcome and outcome.assistant_event_id
    again = await c.say(session_id, client_message_id="q")
    assert again.outcome.status == "succeeded" and again.outcome.assistant_event_id == "", "its first answer was empty"
    assert len(await c.events(session_id)) == 4


async def test_a_repeat_of_a_message_whose_queued_turn_failed_is_answered_as_the_first(world: World) -> None:
    c, session_id = await conversation(world)
    turn = (await c.say(session_id, client_message_id="m")).turn
    queued = (await c.say(session_id, client_message_id="q")).turn
    await world.answer(turn)
    await world.begin(queued.run_id)
    await world.finish(queued.run_id, status="failed", error_message="away", error_status=502)
    again = await c.say(session_id, client_message_id="q")
    assert not again.HasField("turn"), "it was told that the message stands: nothing is run for it once more"
    assert (again.outcome.assistant_event_id, again.outcome.error_message, again.outcome.error_status) == ("", "", 0)


async def test_one_signature_is_one_message(world: World) -> None:
    c, session_id = await conversation(world)
    first = await c.say(session_id, signature_hash=b"\x01" * 32)
    assert await c.say(session_id, signature_hash=b"\x01" * 32) == first
    assert (await c.say(session_id, signature_hash=b"\x02" * 32)).turn.run_id != first.turn.run_id
    await c.say(session_id, "other", client_message_id="sig:" + "01" * 32)
    assert len(await c.events(session_id)) == 3


async def test_ids_of_messages_belong_to_the_writer(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    m = await world.member(c, agent_id)
    session_id = await c.session(agent_id)
    await c.say(session_id, "owner", client_message_id="1")
    await m.say(session_id, "member", client_message_id="1")
    events = await c.events(session_id)
    assert [(e["content"], e["meta"]["accountId"]) for e in events] == [("owner", c.id), ("member", m.id)]


async def test_equal_messages_at_once_are_one(world: World) -> None:
    c, session_id = await conversation(world)
    other = await c.session((await c("ListAgents")).agents[0].id)
    sent = [c.say(session_id, client_message_id="m") for _ in range(8)]
    moved = [c.say(other, client_message_id="m") for _ in range(3)]
    answers = await asyncio.gather(*sent, *moved, return_exceptions=True)
    runs = {a.turn.run_id for a in answers if not isinstance(a, BaseException)}
    assert len(runs) == 1
    assert {str(a) for a in answers if isinstance(a, BaseException)} <= {MISMATCH}
    assert len(await c.events(session_id)) + len(await c.events(other)) == 1
    rows = await world.sql("SELECT live_turns, last_seq FROM sessions WHERE id = ANY($1)", [session_id, other])
    assert sorted(map(tuple, rows)) == [(0, 0), (1, 1)]


async def test_a_failed_message_is_run_again_on_the_message_that_stands(world: World) -> None:
    c, session_id = await conversation(world)
    first = (await c.say(session_id, client_message_id="m")).turn
    await world.begin(first.run_id)
    await world.finish(first.run_id, status="failed", error_message="boom", error_status=502)
    ears = await world.ears(c.id)
    answers = await asyncio.gather(*(c.say(session_id, client_message_id="m") for _ in range(4)))
    (run_id,) = {a.turn.run_id for a in answers}
    turn = answers[0].turn
    assert run_id != first.run_id and turn.retry and turn.title == first.title and turn.event_ids == first.event_ids
    await ears.until("session_changed")
    assert len(await c.events(session_id)) == 1
    assert list((await world.begin(run_id)).own_event_ids) == list(first.event_ids)
    outcome = await world.finish(run_id, "at last")
    assert (await c.say(session_id, client_message_id="m")).outcome == outcome


async def test_a_failed_message_runs_again_behind_a_live_turn(world: World) -> None:
    c, session_id = await conversation(world)
    first = (await c.say(session_id, client_message_id="m")).turn
    await world.begin(first.run_id)
    await world.finish(first.run_id, status="failed")
    other = (await c.say(session_id, "another")).turn
    again = (await c.say(session_id, client_message_id="m")).turn
    assert again.retry and again.queued_behind and again.event_ids == first.event_ids
    assert (await c.say(session_id, client_message_id="m")).turn.run_id == again.run_id, "once"
    for turn in (other, again):
        await world.answer(turn)
    assert len(await c.events(session_id)) == 4 and (await c.get(session_id)).status == "idle"


async def test_retry(world: World) -> None:
    c, session_id = await conversation(world)
    nothing = "Nothing to retry: the latest run did not fail"
    await c.fails(400, nothing, "RetrySession", session_id=session_id)
    turn = (await c.say(session_id, "the question")).turn
    await c.fails(409, "Session is already streaming", "RetrySession", session_id=session_id)
    await world.begin(turn.run_id)
    await world.finish(turn.run_id, status="failed")
    assert (await c.get(session_id)).status == "error"
    again = (await c("RetrySession", session_id=session_id)).turn
    assert again.retry and not again.queued_behind and again.title == "the question"
    assert again.event_ids == turn.event_ids and (await c.get(session_id)).status == "streaming"
    await world.answer(again)
    await c.fails(400, nothing, "RetrySession", session_id=session_id)
    await c.fails(404, "Session not found", "RetrySession", session_id=NIL)
    assert len(await c.events(session_id)) == 2


async def test_only_one_of_many_retries_opens_a_turn(world: World) -> None:
    c, session_id = await conversation(world)
    turn = (await c.say(session_id)).turn
    await world.begin(turn.run_id)
    await world.finish(turn.run_id, status="failed")
    answers = await asyncio.gather(
        *(c("RetrySession", session_id=session_id) for _ in range(5)), return_exceptions=True
    )
    assert sorted(str(a) for a in answers if isinstance(a, BaseException)) == ["Session is already streaming"] * 4
