"""Activity over HTTP: what an HM server reports fires sessions whose model answers, once, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from libs.protocol.triggers import AgentTriggerInfo
from libs.stack import Stack
from tests.integration.conftest import ENVIRONMENT
from tests.support.hypermedia import FakeHypermediaServer
from tests.support.kit import Owner, World, refused, until
from tests.triggers.events import block, citation, comment, doc_update

QUICK = {
    **ENVIRONMENT,
    "SEED_AGENTS_ACTIVITY_POLL_INTERVAL_MS": "200",
    "SEED_AGENTS_ACTIVITY_PAGE_SIZE": "4",
    "SEED_AGENTS_ACTIVITY_LEASE_MS": "1000",
    "SEED_AGENTS_FIRING_SWEEP_MS": "1000",
}
DOCUMENT = {"type": "document-comment", "resource": "hm://site/notes"}
MENTION = {"type": "user-mention", "mentionedAccounts": ["bob"]}
REPLY = {"type": "comment-reply", "repliedToAccounts": ["bob"]}
pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Place:
    """The system and the HM server that it polls."""

    stack: Stack
    hypermedia: FakeHypermediaServer

    async def happens(self, owner: Owner, *events: dict[str, Any]) -> None:
        """Events that only this owner's account sees, oldest first."""
        feed = self.hypermedia.feeds.setdefault(owner.client.account, [])
        for event in events:
            feed.insert(0, event)

    async def polled(self, owner: Owner) -> None:
        """Wait until the account has been polled once more from now on, and that poll is over."""
        before = len(self.hypermedia.polls(owner.client.account))
        # The second one begins after the first has ended.
        await until(lambda: len(self.hypermedia.polls(owner.client.account)) >= before + 2, what="two polls")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    hypermedia = FakeHypermediaServer()
    await hypermedia.start()
    env = {**QUICK, "SEED_AGENTS_HM_SERVER_URL": hypermedia.url}
    try:
        async with Stack(tmp_path_factory.mktemp("activity") / "data", 0, env=env) as stack:
            yield Place(stack, hypermedia)
    finally:
        await hypermedia.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def there(place: Place) -> AsyncIterator[World]:
    async with World(place.stack.urls) as world:
        yield world


def now() -> int:
    return int(time.time() * 1000) + 60_000


async def create(owner: Owner, source: dict[str, Any], **more: Any) -> AgentTriggerInfo:
    trigger = {"name": "T", "prompt": "Answer it.", "source": source, **more}
    return (await owner.client.call("CreateAgentTrigger", agentId=owner.agent, trigger=trigger)).trigger


async def get(owner: Owner, trigger: AgentTriggerInfo) -> Any:
    return await owner.client.call("GetAgentTrigger", triggerId=trigger.id)


async def keys(owner: Owner, trigger: AgentTriggerInfo) -> list[str]:
    """Event keys of its firings, oldest first."""
    return [firing.activity_key for firing in reversed((await get(owner, trigger)).firings)]


async def fired(owner: Owner, trigger: AgentTriggerInfo, *wanted: str) -> Any:
    """The answer to GetAgentTrigger once it has fired for just these, in this order, and their sessions are there."""

    async def probe() -> Any:
        found = await get(owner, trigger)
        return found if len(found.sessions) >= len(wanted) else None

    found = await until(probe, what=f"firings for {wanted}")
    assert [firing.activity_key for firing in reversed(found.firings)] == list(wanted)
    return found


async def test_a_comment_fires_a_session_that_answers(place: Place, there: World) -> None:
    owner = await there.owner("Thank you.")
    trigger = await create(owner, DOCUMENT, name="Notes")
    event = comment("bafy1", at=now())
    await place.happens(owner, event)
    found = await fired(owner, trigger, "blob-bafy1")
    (session,) = found.sessions
    assert session.title == "Notes — comment on Notes"
    assert (session.started_by_trigger.trigger_id, session.started_by_trigger.activity_key) == (
        trigger.id,
        "blob-bafy1",
    )
    await owner.at_rest(session.id)
    (_, asked), (_, answered) = await owner.said(session.id)
    assert answered == "Thank you."
    assert asked.startswith("Answer it.\n\n<trigger_context>\n") and '"activityKey": "blob-bafy1"' in asked
    assert '"id": "hm://site/notes"' in asked and "<trigger_instructions>" in asked
    context: Any = (await owner.client.session(session.id)).trigger_context
    assert context.activity == event
    after = (await get(owner, trigger)).trigger
    assert after.last_fired_at >= trigger.created_at and after.last_checked_at >= trigger.created_at
    asked_feed = place.hypermedia.polls(owner.client.account)[0]
    assert asked_feed == {"pageSize": "4", "currentAccount": owner.client.account, "order": "observed"}
    await place.polled(owner)
    assert await keys(owner, trigger) == ["blob-bafy1"]


async def test_each_source_fires_for_its_own(place: Place, there: World) -> None:
    owner = await there.owner()
    document = await create(owner, DOCUMENT, name="document")
    mention = await create(owner, MENTION, name="mention")
    reply = await create(owner, {**REPLY, "resourcePrefix": "hm://site"}, name="reply")
    update = await create(owner, {"type": "site-update", "resourcePrefix": "hm://site/docs", "eventTypes": ["ref"]})
    off = await create(owner, DOCUMENT, enabled=False)
    await place.happens(
        owner,
        comment("bafya", at=now()),
        doc_update("bafyb", at=now()),
        comment("bafyc", on=("other",), content=[block("Hi", "hm://bob/:profile")], at=now()),
        comment("bafyd", on=("site", "else"), parent_by="bob", at=now()),
        comment("bafye", on=("site", "else"), by="bob", parent_by="bob", at=now()),
        doc_update("bafyf", doc=("site", "docsy"), at=now()),
    )
    await fired(owner, document, "blob-bafya")
    await fired(owner, update, "blob-bafyb")
    await fired(owner, mention, "blob-bafyc")
    await fired(owner, reply, "blob-bafyd")
    await place.polled(owner)
    assert await keys(owner, off) == []
    for trigger in (document, update, mention, reply):
        assert len(await keys(owner, trigger)) == 1


@pytest.mark.parametrize("citation_first", [False, True])
async def test_a_compound_trigger_fires_once_for_one_activity(place: Place, there: World, citation_first: bool) -> None:
    owner = await there.owner()
    conditions = [{"id": "m", "source": MENTION}, {"id": "r", "source": REPLY}, {"source": DOCUMENT}]
    trigger = await create(owner, {"type": "activity", "conditions": conditions})
    one = comment("bafy1", content=[block("", "hm://bob")], parent_by="bob", at=now())
    other = citation("bafy1", at=now())
    first, second = (other, one) if citation_first else (one, other)
    await place.happens(owner, first)
    found = await fired(owner, trigger, first["feedEventId"])
    matched = [condition.id for condition in found.firings[0].matched_conditions]
    assert matched[: 1 if citation_first else 2] == (["m"] if citation_first else ["m", "r"])
    await place.happens(owner, second, comment("bafy2", at=now()))
    await fired(owner, trigger, first["feedEventId"], "blob-bafy2")


async def test_a_first_poll_fires_for_nothing_old(place: Place, there: World) -> None:
    owner = await there.owner()
    await place.happens(owner, *(comment(f"bafyold{n}", at=1_000 + n) for n in range(6)))
    timeless = comment("bafytimeless")
    del timeless["eventAtMs"], timeless["time"]
    await place.happens(owner, timeless, comment("bafynew", at=now()))
    trigger = await create(owner, DOCUMENT)
    await fired(owner, trigger, "blob-bafynew")
    # From now on it counts when an event is observed, not when it was made.
    await place.happens(owner, comment("bafylate", at=1_000))
    await fired(owner, trigger, "blob-bafynew", "blob-bafylate")


async def test_more_events_than_a_page_fire_in_their_order(place: Place, there: World) -> None:
    owner = await there.owner()
    trigger = await create(owner, DOCUMENT)
    await place.polled(owner)
    events = [comment(f"bafy{n:02}", at=now()) for n in range(11)]
    await place.happens(owner, *events)
    await fired(owner, trigger, *(event["feedEventId"] for event in events))


async def test_a_server_that_was_away_has_cost_nothing(place: Place, there: World) -> None:
    owner = await there.owner()
    trigger = await create(owner, DOCUMENT)
    await place.happens(owner, comment("bafy1", at=now()))
    await fired(owner, trigger, "blob-bafy1")
    port = urlsplit(place.hypermedia.url).port or 0
    await place.hypermedia.stop()
    await place.happens(owner, comment("bafy2", at=now()), comment("bafy3", at=now()))
    await place.hypermedia.start(port)
    await fired(owner, trigger, "blob-bafy1", "blob-bafy2", "blob-bafy3")
    place.hypermedia.answer(500, b"no")
    failing = len(place.hypermedia.polls(owner.client.account))
    await until(lambda: len(place.hypermedia.polls(owner.client.account)) > failing + 1, what="failing polls")
    await place.happens(owner, comment("bafy4", at=now()))
    place.hypermedia.answer()
    await fired(owner, trigger, "blob-bafy1", "blob-bafy2", "blob-bafy3", "blob-bafy4")


async def test_a_slow_feed_delays_nobody(place: Place, there: World) -> None:
    slow, quick = await there.owner(), await there.owner()
    place.hypermedia.slow.add(slow.client.account)
    await create(slow, DOCUMENT)
    await until(lambda: place.hypermedia.polls(slow.client.account), what="the slow poll")
    trigger = await create(quick, DOCUMENT)
    await place.happens(quick, comment("bafy1", at=now()))
    await fired(quick, trigger, "blob-bafy1")
    place.hypermedia.slow.clear()


async def test_killed_monitors_lose_nothing_and_double_nothing(place: Place, there: World) -> None:
    owner = await there.owner()
    trigger = await create(owner, DOCUMENT)
    await place.polled(owner)
    process = place.stack.process("triggers")
    for kill in range(3):
        await place.happens(owner, *(comment(f"bafy{kill}{n}", at=now()) for n in range(6)))
        await until(lambda: keys(owner, trigger), what="the first firing")
        starts = process.starts
        process.crash()
        await until(lambda before=starts: process.starts > before, what="the next start")
        await asyncio.to_thread(process.wait_ready)
    wanted = [f"blob-bafy{kill}{n}" for kill in range(3) for n in range(6)]

    async def probe() -> bool:
        found = await get(owner, trigger)
        return len(found.sessions) >= len(wanted)

    await until(probe, within_s=40, what="all firings")
    await place.polled(owner)
    found = await get(owner, trigger)
    assert sorted(firing.activity_key for firing in found.firings) == wanted
    assert len({session.id for session in found.sessions}) == len(found.sessions) == len(wanted)


async def test_combining_two_triggers(place: Place, there: World) -> None:
    owner = await there.owner()
    first = await create(owner, DOCUMENT, name="First", prompt="One")
    other = await create(owner, MENTION, name="Other", prompt="Two", continuation={"kind": "newThread"})
    both = comment("bafy1", content=[block("", "hm://bob")], at=now())
    away = comment("bafy2", on=("else",), content=[block("", "hm://bob")], at=now())
    await place.happens(owner, both, away)
    await fired(owner, first, "blob-bafy1")
    await fired(owner, other, "blob-bafy1", "blob-bafy2")
    first, other = (await get(owner, first)).trigger, (await get(owner, other)).trigger

    async def combine(**change: Any) -> AgentTriggerInfo:
        asked = {
            "triggerId": first.id,
            "otherTriggerId": other.id,
            "expectedUpdatedAt": first.updated_at,
            "otherExpectedUpdatedAt": other.updated_at,
            **change,
        }
        return (await owner.client.call("CombineAgentTriggers", **asked)).trigger

    stale = "This trigger was changed elsewhere, load it again"
    with refused(409, stale):
        await combine(expectedUpdatedAt=first.updated_at - 1)
    with refused(409, stale):
        await combine(otherExpectedUpdatedAt=None)
    with refused(400, "Only activity triggers that differ can be combined"):
        await combine(otherTriggerId=first.id, otherExpectedUpdatedAt=first.updated_at)
    with refused(404, "Agent trigger not found"):
        await combine(otherTriggerId="none")
    clock = await create(owner, {"type": "webhook"}, enabled=False)
    with refused(400, "Only activity triggers of the same agent can be combined"):
        await combine(otherTriggerId=clock.id, otherExpectedUpdatedAt=clock.updated_at)
    stranger = await there.owner()
    with refused(404, "Agent trigger not found"):
        await stranger.client.call(
            "CombineAgentTriggers",
            triggerId=first.id,
            otherTriggerId=other.id,
            expectedUpdatedAt=first.updated_at,
            otherExpectedUpdatedAt=other.updated_at,
        )

    made = await combine(useOtherAction=True)
    assert (made.id, made.name, made.enabled, made.updated_at > first.updated_at) == (first.id, "First", True, True)
    blocks: Any = made.prompt
    assert blocks[0].block["text"] == "Two"
    source: Any = made.source
    assert [type(condition.source).__name__ for condition in source.conditions] == [
        "DocumentCommentSource",
        "UserMentionSource",
    ]
    assert len({condition.id for condition in source.conditions}) == 2
    assert await combine(useOtherAction=True) == made
    merged = (await get(owner, other)).trigger
    assert (merged.enabled, merged.merged_into) == (False, first.id)
    with refused(409, "A trigger that was merged into another one cannot be edited"):
        await owner.client.call("UpdateAgentTrigger", triggerId=other.id, patch={"enabled": True})
    third = await create(owner, REPLY)
    with refused(409, "A trigger that was merged into another one cannot be edited"):
        await combine(triggerId=third.id, expectedUpdatedAt=third.updated_at, otherExpectedUpdatedAt=merged.updated_at)

    await owner.client.call("DeleteAgentTrigger", triggerId=other.id)
    # The citation of a comment that the other one has handled.
    await place.happens(owner, citation("bafy2", at=now()), citation("bafy3", at=now()))
    await fired(owner, first, "blob-bafy1", "mention-bafy3--hm://bob/:profile")


async def test_an_agent_that_signs_begins_with_a_trigger(place: Place, there: World) -> None:
    place.hypermedia.answer()
    owner = await there.owner("Hello Alice.")
    identity = (await owner.client.send({"_": "CreateSigningIdentity", "label": "Bot"}))["identity"]
    owner.agent = await owner.client.create_agent(owner.definition(name="Bot", signing_keys=[identity["name"]]))
    (trigger,) = (await owner.client.call("ListAgentTriggers", agentId=owner.agent)).triggers
    assert (trigger.name, trigger.enabled) == ("Mentions, replies, and comments for Bot", True)
    account = identity["accountId"]
    assert [(c.id, type(c.source).__name__) for c in trigger.source.conditions] == [
        ("mention", "UserMentionSource"),
        ("reply", "CommentReplySource"),
        ("document-comment", "DocumentAuthorCommentSource"),
    ]
    assert trigger.source.conditions[0].source.mentioned_accounts == [account]
    await place.happens(
        owner,
        comment("bafy1", by=account, parent_by=account, authors=(account,), at=now()),
        comment("bafy2", parent_by=account, authors=(account,), at=now()),
    )
    found = await fired(owner, trigger, "blob-bafy2")
    assert [condition.id for condition in found.firings[0].matched_conditions] == ["reply", "document-comment"]
    await owner.at_rest(found.sessions[0].id)
    assert (await owner.said(found.sessions[0].id))[-1] == ("assistant", "Hello Alice.")


async def test_trying_a_trigger_out_fires_nothing(place: Place, there: World) -> None:
    owner = await there.owner()
    session = await owner.session()
    await place.happens(owner, comment("bafy1", at=5_000), doc_update("bafy2"), comment("bafy3", on=("else",)))
    content = '{"source": {"type": "document-comment", "resource": "hm://site/notes"}, "prompt": "Answer."}'
    answer = await owner.client.call(
        "InvokeSessionTool",
        sessionId=session,
        verb="write",
        input={"address": "~/triggers/Notes", "content": content, "dryRun": True},
    )
    output: Any = answer.output
    assert (output["dryRun"], output["checked"]) == (True, 3)
    assert output["matches"] == [
        {"activityKey": "blob-bafy1", "activitySummary": "comment on Notes", "at": 5_000, "matchedConditions": []}
    ]
    assert not (await owner.client.call("ListAgentTriggers", agentId=owner.agent)).triggers
