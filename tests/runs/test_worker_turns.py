"""Turns as a worker executes them (runtime.md, section 2; websocket.md for what is streamed)."""

import asyncio
import json
from typing import Any

import pytest

from libs.stack.scripted import Calls, Fail, Say
from tests.runs.house import until
from tests.runs.workshop import Workshop

VERBS = ("read", "write", "call", "delegate", "plan", "status", "continue_session")


def error_of(row: Any) -> tuple[str, str, int]:
    told = json.loads(row["error"])
    return told["code"], told["message"], row["error_status"]


async def test_a_turn_succeeds_and_everybody_hears(shop: Workshop) -> None:
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    row = await shop.ended(start.run_id)
    [_, said] = session.log
    assert (said["role"], said["content"]) == ("assistant", "Hello from the scripted model.")
    usage = {"input": 5, "output": 5, "cacheRead": 0, "cacheWrite": 0, "total": 10}
    assert said["meta"].pop("durationMs") >= 0
    assert said["meta"] == {"model": "scripted-1", "provider": "custom", "usage": usage}
    assert (row["status"], row["assistant_event_id"]) == ("succeeded", session.events[1].id)
    assert json.loads(row["usage"]) == usage and row["error"] is None
    [outcome] = await until(lambda: shop.settled)
    assert (outcome.run_id, outcome.status, outcome.assistant_event_id) == (
        start.run_id,
        "succeeded",
        session.events[1].id,
    )
    assert shop.phases(start.run_id) == ["starting", "responding", "text", "thinking", "done"]
    first, thinking = [p for p in shop.partials if p.usage]
    assert json.loads(first.usage)["total"] == 0 and json.loads(thinking.usage) == usage
    assert await shop.kept(session.id) == {}


async def test_the_model_gets_the_prompt_the_log_the_tools_and_the_defaults(shop: Workshop) -> None:
    await shop.worker()
    await shop.ended((await shop.say()).run_id)
    [request] = shop.provider.requests
    assert request["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert [tool["function"]["name"] for tool in request["tools"]] == list(VERBS)
    assert (request["model"], request["temperature"]) == ("scripted-1", 0)
    assert shop.provider.headers[0]["authorization"] == "Bearer sk-secret"


async def test_text_arrives_in_order_the_first_piece_at_once(shop: Workshop) -> None:
    gate = asyncio.Event()
    chunks = ["Grüße 🌍", *(f" {n}" for n in range(40))]
    shop.provider.script.append(Say(chunks, gate=gate))
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    await until(lambda: shop.streamed(start.run_id) == chunks[0])
    # Whoever joins now finds the text so far in Valkey.
    [block] = {p.partial_id for p in shop.partials if p.text_delta}
    assert await shop.kept(session.id) == {block.encode(): chunks[0].encode()}
    gate.set()
    await shop.ended(start.run_id)
    heard = [p for p in shop.partials if p.text_delta]
    assert {p.partial_id for p in heard} == {block}
    offset = 0
    for piece in heard:
        assert piece.offset == offset
        offset += len(piece.text_delta)
    assert "".join(p.text_delta for p in heard) == "".join(chunks)
    assert 1 < len(heard) < len(chunks)
    assert [p.partial_id for p in shop.partials if p.done] == [block]


async def test_tools_run_and_the_model_goes_on(shop: Workshop) -> None:
    plan = {"title": "Trip", "steps": [{"id": "a", "label": "Book", "status": "done"}]}
    named = {"title": "A trip", "description": "Planning."}
    shop.provider.script += [Calls([("plan", plan), ("status", named)], before="Let me see."), "All set."]
    await shop.worker()
    session = shop.sessions.conversation()
    session.title_source = "system"
    start = await shop.say(session)
    row = await shop.ended(start.run_id)
    assert row["status"] == "succeeded"
    # plan leaves no events, status leaves both of its own.
    _, first, call, result, last = session.log
    assert (first["content"], last["content"]) == ("Let me see.", "All set.")
    assert (call["type"], call["name"], call["input"]) == ("tool_call", "status", named)
    assert (result["type"], result["toolCallId"], result["output"]) == (
        "tool_result",
        call["id"],
        {"ok": True, **named},
    )
    assert result["meta"]["durationMs"] >= 0
    assert (session.title, session.description) == ("A trip", "Planning.")
    stored = json.loads(session.plan)
    assert stored["steps"] == plan["steps"] and stored["ownerRunId"] == start.run_id and stored["settledAt"]
    assert json.loads(row["plan"]) == stored
    assert json.loads(row["usage"])["total"] == 20
    system, _, reply, *results = shop.provider.requests[1]["messages"]
    assert system["role"] == "system"
    assert [c["function"]["name"] for c in reply["tool_calls"]] == ["plan", "status"]
    assert [json.loads(r["content"]) for r in results] == [{"ok": True, "steps": 1}, {"ok": True, **named}]
    assert shop.phases(start.run_id) == [
        "starting", "responding", "text", "thinking", "done", "tool", "thinking",
        "responding", "text", "thinking", "done",
    ]  # fmt: skip
    [tool] = [json.loads(p.activity) for p in shop.partials if b'"tool"' in p.activity]
    assert tool == {"phase": "tool", "toolName": "status", "toolCallId": call["id"], "detail": "A trip"}
    assert len({p.partial_id for p in shop.partials if p.done}) == 2


async def test_wrong_calls_are_told_to_the_model(shop: Workshop) -> None:
    calls = [("teleport", {}), ("status", "[1]"), ("plan", {"steps": 7}), ("status", {"description": ""})]
    shop.provider.script += [Calls(calls), "Sorry."]
    await shop.worker()
    session = shop.sessions.conversation()
    row = await shop.ended((await shop.say(session)).run_id)
    assert row["status"] == "succeeded"
    results = [m["content"] for m in shop.provider.requests[1]["messages"] if m["role"] == "tool"]
    assert "teleport" in results[0] and "plan, status" in results[0]
    assert "not a JSON object" in results[1] and "steps" in results[2]
    assert results[3] == "Session description is required"
    logged = [event["error"] for event in session.log if event["type"] == "tool_result"]
    assert sorted(logged) == sorted([results[0], results[1], results[3]])
    assert [event["input"] for event in session.log if event["type"] == "tool_call"] == [{}, "[1]", {"description": ""}]


async def test_a_plan_settled_by_an_earlier_run_is_retired(shop: Workshop) -> None:
    await shop.worker()
    session = shop.sessions.conversation()
    before = await shop.say(session)
    await shop.ended(before.run_id)
    done = {"steps": [{"id": "a", "label": "b", "status": "done"}], "ownerRunId": before.run_id, "settledAt": 1}
    session.plan = json.dumps(done).encode()
    await shop.ended((await shop.say(session)).run_id)
    assert session.plan == b""
    assert "plan_state" not in json.dumps(shop.provider.requests[-1]["messages"])
    # The copy that its own run should have made is made now.
    assert json.loads((await shop.row(before.run_id))["plan"]) == done
    session.plan = json.dumps(
        {**done, "settledAt": None, "steps": [{**done["steps"][0], "status": "running"}]}
    ).encode()
    await shop.ended((await shop.say(session)).run_id)
    assert "a · b · running" in shop.provider.requests[-1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Fail(401, "bad key sk-secret"), ("provider-error", "bad key ***", 502)),
        (Fail(503, "overloaded"), ("provider-error", "overloaded", 502)),
        (Say(["Hel", "lo"], cut=True), ("provider-error", "Model provider broke off its reply", 502)),
        (Say([" "]), ("provider-error", "Model response did not include assistant text", 502)),
    ],
    ids=["refused", "away", "cut", "blank"],
)
async def test_a_failing_provider_fails_the_turn(shop: Workshop, answer: Any, expected: tuple[str, str, int]) -> None:
    shop.provider.reply = answer
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    row = await shop.ended(start.run_id)
    assert (row["status"], row["failures"], error_of(row)) == ("failed", 0, expected)
    assert session.log[1:] == [{"type": "error", "message": expected[1]}]
    [outcome] = await until(lambda: shop.settled)
    assert (outcome.status, outcome.error_message, outcome.error_status) == ("failed", *expected[1:])
    assert await shop.kept(session.id) == {}


async def test_a_wrong_configuration_fails_the_turn_for_good(shop: Workshop) -> None:
    await shop.worker()
    shop.secrets.api_key = ""
    row = await shop.ended((await shop.say(behind=True)).run_id)
    assert error_of(row) == ("config-error", "Secret not found: key", 400)
    shop.sessions.provider = "theirs"
    row = await shop.ended((await shop.say()).run_id)
    assert error_of(row) == ("config-error", "Model provider not found", 400)
    assert shop.provider.requests == []


async def test_an_override_of_a_provider_that_is_gone_is_ignored(shop: Workshop) -> None:
    shop.sessions.provider, shop.sessions.fallback = "theirs", "mine"
    await shop.worker()
    row = await shop.ended((await shop.say()).run_id)
    assert row["status"] == "succeeded"


async def test_a_background_turn_is_tried_three_times(shop: Workshop) -> None:
    shop.provider.script += [Say(["Hel"], cut=True), Say(["Hel"], cut=True), "Hello."]
    await shop.worker()
    session = shop.sessions.conversation()
    row = await shop.ended((await shop.say(session, behind=True)).run_id)
    assert (row["status"], row["attempt"], row["failures"]) == ("succeeded", 3, 2)
    assert [event["content"] for event in session.log] == ["hi", "Hello."]
    shop.provider.reply = Say(["Hel"], cut=True)
    row = await shop.ended((await shop.say(session, behind=True)).run_id)
    assert (row["status"], row["attempt"], error_of(row)[0]) == ("failed", 3, "provider-error")
    assert session.log[-1]["type"] == "error"
    # No block of text is left open.
    blocks = {p.partial_id for p in shop.partials if p.text_delta}
    assert blocks == {p.partial_id for p in shop.partials if p.done}


async def test_a_turn_behind_another_waits_and_knows_its_own_messages(shop: Workshop) -> None:
    gate = asyncio.Event()
    shop.provider.script += [Say(["First."], gate=gate, gate_at=0), "Second."]
    await shop.worker()
    session = shop.sessions.conversation()
    first = await shop.say(session)
    await until(lambda: shop.provider.requests)
    second = await shop.say(session, behind=True)
    assert (await shop.row(second.run_id))["status"] == "queued"
    gate.set()
    row = await shop.ended(second.run_id)
    assert row["started_at"] >= (await shop.row(first.run_id))["finished_at"]
    assert [event["content"] for event in session.log] == ["hi", "hi", "First.", "Second."]
    note = shop.provider.requests[1]["messages"][-1]["content"]
    assert note.startswith("<concurrent_user_messages>") and second.event_ids[0] in note
    assert first.event_ids[0] not in note


async def test_untitled_sessions_are_named_beside_the_turn(shop: Workshop) -> None:
    shop.provider.aside = "**Title:** Greetings.\nThey greet."
    await shop.worker(titles=True)
    named, untitled = shop.sessions.conversation(), shop.sessions.conversation()
    named.title, untitled.title_source = "Mine", "system"
    await shop.ended((await shop.say(named)).run_id)
    await shop.ended((await shop.say(untitled)).run_id)
    await until(lambda: untitled.title)
    assert (untitled.title, untitled.description) == ("Greetings", "They greet.")
    assert named.title == "Mine"
    assert sum(not request.get("tools") for request in shop.provider.requests) == 1


async def test_a_title_is_tried_at_the_start_and_at_the_end_three_times_a_session(shop: Workshop) -> None:
    shop.provider.aside = Fail(400, "no titles today")
    await shop.worker(titles=True)
    session = shop.sessions.conversation()
    session.title_source = "system"

    def asides() -> int:
        return sum(not request.get("tools") for request in shop.provider.requests)

    gate = asyncio.Event()
    shop.provider.script.append(Say(["Hello."], gate=gate, gate_at=0))
    first = await shop.say(session)
    await until(lambda: asides() == 1)
    gate.set()
    await shop.ended(first.run_id)
    await until(lambda: asides() == 2)
    # Another process knows of the attempts too: the session counts them.
    await shop.worker(titles=True)
    await shop.ended((await shop.say(session)).run_id)
    await until(lambda: asides() == 3)
    for _ in range(3):
        await shop.ended((await shop.say(session)).run_id)
    assert (asides(), session.title_attempts, session.title) == (3, 3, None)


async def test_the_model_may_name_the_session_before_the_titler_does(shop: Workshop) -> None:
    gate = asyncio.Event()
    shop.provider.aside = Say(["Theirs\nA line."], gate=gate, gate_at=0)
    shop.provider.script += [Calls([("status", {"title": "Mine"})]), "Done."]
    await shop.worker(titles=True)
    session = shop.sessions.conversation()
    session.title_source = "system"
    await shop.ended((await shop.say(session)).run_id)
    gate.set()
    await until(lambda: session.description == "A line.")
    assert session.title == "Mine"
