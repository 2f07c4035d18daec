"""Sessions that go on in another one, over the public edge."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from libs.client import Client
from libs.protocol.actions import DeleteSession
from libs.stack.scripted import Answer, Calls
from tests.support.cast import delegate, said_by_users
from tests.support.kit import Owner, World, text, until

ASKED = {
    "reason": "topic_change",
    "title": "The offsite",
    "description": "Where and when.",
    "handoff": {"purpose": "A survey of venues", "currentRequest": "Plan the offsite", "decisions": ["Not in August"]},
    "sources": [{"kind": "session_event", "seq": 1, "relevance": "how it began"}],
}
GO_ON = ("continue_session", ASKED)


class Model:
    """Answers; when told to `switch` it goes on elsewhere, beside other calls, and tries once more there (`again`)."""

    def __init__(self, *beside: tuple[str, dict[str, Any]], again: bool = False) -> None:
        self.beside, self.again = beside, again
        self.asked: list[dict[str, Any]] = []

    def __call__(self, body: dict[str, Any]) -> Answer:
        self.asked.append(body)
        said = said_by_users(body)
        may = self.again or not said[0].startswith("<session_continuation>")
        if may and said[-1].startswith("switch") and body["messages"][-1]["role"] == "user":
            return Calls([*self.beside, GO_ON], before="Let us start afresh.")
        return f"Answer to {said[-1]}."


async def switched(owner: Owner, session: str, key: str = "m") -> Any:
    return await owner.client.call("MessageSession", sessionId=session, content=text("switch"), clientMessageId=key)


async def links(client: Client, session: str) -> tuple[str, str]:
    """The sessions before and after."""
    info = (await client.session(session)).session
    both = (info.continued_from, info.continued_to)
    before, after = ("" if link is UNSET else link.session_id for link in both)  # pyright: ignore[reportAttributeAccessIssue]
    return before, after


async def test_the_successor_answers_and_everybody_is_told_where(world: World) -> None:
    model = Model()
    owner = await world.owner(model)
    session = await owner.session("Survey")
    await owner.client.message(session, "hello")
    account = world.watch(owner.client, f"account/{owner.client.account}")
    watch = world.watch(owner.client, f"sessions/{session}")
    answer = await switched(owner, session)
    after = answer.continued_to_session_id
    assert (
        after
        and await links(owner.client, session) == ("", after)
        and await links(owner.client, after) == (session, "")
    )

    info = await owner.at_rest(after)
    assert (info.title, info.description, info.parent_session_id) == ("The offsite", "Where and when.", UNSET)
    log = [event.event for event in await owner.events(session)]
    assert log[-2]["type"] == "tool_call" and log[-1]["output"]["successorSessionId"] == after
    assert answer.assistant_event_id == (await owner.events(session))[-3].id
    told, asked, said = [event.event for event in await owner.events(after)]
    assert told["actor"] == "system" and asked["content"] == "switch" and said["content"].startswith("Answer to")
    assert asked["meta"]["continuedFrom"]["sessionId"] == session
    for expected in ("A survey of venues", "- Not in August", "[1] user: hello", "how it began"):
        assert expected in told["content"]

    await until(lambda: {"session-created", "session-continued"} <= set(account.hints()), what="the hints")
    link = await watch.wait(lambda e: hasattr(e, "value") and getattr(e.value, "continued_to", UNSET) is not UNSET)
    assert (link.value.continued_to.session_id, link.value.continued_to.reason) == (after, "topic_change")
    [first, _] = (await owner.client.call("ListSessions", limit=2)).sessions
    assert first.id == after

    [run, _] = await owner.runs(session)
    [successor] = await owner.runs(after)
    assert (run.status, run.unmet_obligations, successor.status) == ("succeeded", UNSET, "succeeded")
    again = await switched(owner, session)
    assert (again.continued_to_session_id, again.assistant_event_id) == (after, answer.assistant_event_id)
    sent, shown = model.asked[1]["messages"][0]["content"], (await owner.client.session(session)).system_prompt_markdown
    assert sent.partition("time is")[0] == shown.partition("time is")[0] and "`continue_session`" in shown


async def test_only_once_for_what_was_said_and_not_with_helpers(world: World) -> None:
    owner = await world.owner(Model(delegate("help")))
    session = await owner.session()
    answer = await switched(owner, session)
    # The helper of the same reply is waited for: the refusal is told, and this conversation goes on.
    assert answer.continued_to_session_id is UNSET
    await owner.at_rest(session)
    errors = [e.event["error"] for e in await owner.events(session) if "error" in e.event]
    assert len(errors) == 1 and "still at work" in errors[0]

    # The successor is told to switch as well, but nobody has said anything new to it.
    other = await world.owner(Model(again=True))
    session = await other.session()
    after = (await switched(other, session)).continued_to_session_id
    await other.at_rest(after)
    refusals = [e.event["error"] for e in await other.events(after) if "error" in e.event]
    assert len(refusals) == 1 and "nobody has said anything new" in refusals[0]
    assert len((await other.client.call("ListSessions")).sessions) == 2

    await other.client.call(DeleteSession(session_id=session))
    assert await links(other.client, after) == ("", "")
