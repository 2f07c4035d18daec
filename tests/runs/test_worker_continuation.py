"""A turn that goes on in another session, as a worker executes it."""

import json
from typing import Any

from seed.sessions.v1 import types_pb2

from libs.stack.scripted import Calls
from services.runs.domain import continuation
from tests.runs.house import new_id, turn, until
from tests.runs.workshop import Workshop

ASKED = {
    "reason": "phase_change",
    "title": "The offsite",
    "description": "Where and when.",
    "handoff": {"purpose": "A survey", "currentRequest": "Plan the offsite"},
}
GO_ON = ("continue_session", ASKED)


async def test_the_successor_answers(shop: Workshop) -> None:
    shop.provider.script.extend([Calls([GO_ON], before="Let us start afresh."), "Lisbon, in May."])
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    row = await shop.ended(start.run_id)
    successor = shop.sessions.turns[start.run_id].successor
    assert successor is not None
    assert (row["status"], row["continued_to"]) == ("succeeded", successor.session_id)
    assert [e["type"] for e in session.log] == ["message", "message", "tool_call", "tool_result"]
    outcome = await until(lambda: [o for o in shop.settled if o.run_id == start.run_id])
    assert outcome[0].continued_to_session_id == successor.session_id
    assert outcome[0].assistant_event_id == session.events[1].id

    assert (await shop.ended(successor.run_id))["status"] == "succeeded"
    after = shop.sessions.conversations[successor.session_id]
    assert [e["content"] for e in after.log][1:] == ["hi", "Lisbon, in May."]
    assert after.log[0]["actor"] == "system" and "Plan the offsite" in after.log[0]["content"]
    [request] = shop.sessions.continued
    assert (request.reason, request.title, request.plan) == ("phase_change", "The offsite", "carry")
    assert (await shop.row(successor.run_id))["queue"] == 0


async def test_it_comes_after_the_other_calls_of_its_reply_and_once(shop: Workshop) -> None:
    shop.provider.script.append(Calls([GO_ON, ("status", {"title": "Survey"}), GO_ON]))
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    assert (await shop.ended(start.run_id))["status"] == "succeeded"
    results = [e for e in session.log if e["type"] == "tool_result"]
    assert [r["name"] for r in results][-1] == "continue_session" and "error" not in results[-1]
    assert sorted(r["error"] for r in results if "error" in r) == [continuation.ONCE]
    assert len(shop.sessions.continued) == 1


async def test_not_with_a_helper_of_the_same_reply(shop: Workshop) -> None:
    shop.provider.script.append(Calls([("delegate", {"brief": "b"}), GO_ON]))
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    refused = await until(lambda: [e for e in session.log if e["type"] == "tool_result" and "error" in e])
    assert (refused[-1]["name"], refused[-1]["error"]) == ("continue_session", continuation.PENDING)
    await shop.reached(start.run_id, "waiting")
    assert shop.sessions.continued == []


async def test_a_refusal_is_told_and_the_turn_goes_on(shop: Workshop) -> None:
    shop.sessions.refuses = continuation.PENDING
    shop.provider.script.extend(
        [Calls([GO_ON, ("continue_session", {})]), Calls([("continue_session", {})]), "Here then."]
    )
    await shop.worker()
    session = shop.sessions.conversation()
    start = await shop.say(session)
    row = await shop.ended(start.run_id)
    assert (row["status"], row["continued_to"], session.log[-1]["content"]) == ("succeeded", "", "Here then.")
    errors = [e["error"] for e in session.log if "error" in e]
    assert sorted(errors[:2]) == sorted([continuation.ONCE, continuation.PENDING])
    assert errors[2].startswith("continue_session reason must be one of")


async def offered(shop: Workshop, **start: Any) -> list[str]:
    session = shop.sessions.conversation()
    session.spec = start.pop("spec", b"")
    event = session.add(type="message", role="user", content="hi")
    shop.provider.requests.clear()
    run = await shop.begin(shop.sessions.track(turn(session.id, event_ids=[event.id], **start)))
    await until(lambda: shop.provider.requests)
    await shop.reached(run.run_id, "succeeded", "failed")
    return [tool["function"]["name"] for tool in shop.provider.requests[0]["tools"]]


async def test_it_is_offered_to_turns_that_nobody_delegated(shop: Workshop) -> None:
    await shop.worker()
    assert "continue_session" in await offered(shop)
    parent = new_id()
    child = {"parent_run_id": parent, "root_run_id": parent, "depth": 1, "origin": "agent"}
    assert "continue_session" not in await offered(shop, **child)
    assert "continue_session" not in await offered(shop, **child, parent_tool_call_id="c")
    typed = json.dumps({"output": {"properties": {}}}).encode()
    assert "continue_session" not in await offered(shop, spec=typed)


async def test_a_claim_that_finds_it_done_ends_the_run(shop: Workshop) -> None:
    session = shop.sessions.conversation()
    start = await shop.say(session)
    ledger = shop.sessions.turns[start.run_id]
    ledger.outcome = types_pb2.TurnOutcome(run_id=start.run_id, status="succeeded", continued_to_session_id="s2")
    await shop.worker()
    row = await shop.ended(start.run_id)
    assert (row["status"], row["continued_to"], shop.provider.requests) == ("succeeded", "s2", [])
