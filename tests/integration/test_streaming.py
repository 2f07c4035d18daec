"""A turn seen live: by subscribers on two edges, by one that joins in the middle, by one that reconnects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.protocol.secrets import ModelProviderConfig
from libs.protocol.ws import (
    WsRunChange,
    WsSessionAppend,
    WsSessionChange,
    WsSessionPartial,
    WsSubscribed,
)
from libs.stack.scripted import Calls, Say
from tests.support.kit import NOWHERE, Watch, World, refused, until


def outline(watch: Watch) -> list[str]:
    """What happened, in order, runs of text folded."""
    seen: list[str] = []
    for event in watch.events:
        match event:
            case WsSubscribed():
                name = "subscribed"
            case WsSessionAppend():
                name = f"append {event.event.seq}"
            case WsSessionChange():
                name = event.value.status
            case WsSessionPartial() if isinstance(event.patch.text_delta, str):
                name = "text"
            case WsSessionPartial() if event.patch.done is True:
                name = "done"
            case _:
                name = "activity"
        if not seen or seen[-1] != name:
            seen.append(name)
    return seen


async def test_two_subscribers_on_two_edges_see_the_same_turn(world: World) -> None:
    """Each durable event once and in order; the text as it comes, and the text so far for who joins in the middle."""
    gate = asyncio.Event()
    owner = await world.owner()
    owner.provider.script.extend(
        [
            Calls([("status", {"description": "Working"})], before="First, "),
            Say(("I look. ", "Then I ", "tell."), gate=gate, gate_at=2),
        ]
    )
    session = await owner.session()
    here = world.watch(owner.client, f"sessions/{session}")
    there = world.watch(world.at(owner.client, 1), f"sessions/{session}")
    for watch in (here, there):
        await watch.kind(WsSessionChange)
    turn = asyncio.create_task(owner.client.message(session, "go"))
    for watch in (here, there):
        await watch.streamed("First, I look. Then I ")
    late = [world.watch(world.at(owner.client, edge), f"sessions/{session}") for edge in (0, 1)]
    for watch in late:
        await watch.streamed("I look. Then I ")
    gate.set()
    answer = await turn
    for watch in (here, there, *late):
        await watch.message("I look. Then I tell.")
        await watch.status("idle", start=len(watch.events) - 1)
    stored = await owner.events(session)
    assert [e.event["type"] for e in stored] == ["message", "message", "tool_call", "tool_result", "message"]
    assert stored[-1].id == answer.assistant_event_id
    for watch in (here, there, *late):
        assert watch.seqs() == [1, 2, 3, 4, 5]
        assert watch.ids() == [e.id for e in stored]
    assert here.text() == there.text() == "First, I look. Then I tell."
    assert [watch.text() for watch in late] == ["I look. Then I tell."] * 2


async def test_the_order_of_a_plain_turn(world: World) -> None:
    owner = await world.owner(Say(("Hel", "lo", "."), delay_s=0.04))
    session = await owner.session()
    watch = world.watch(owner.client, f"sessions/{session}")
    await watch.kind(WsSessionChange)
    await owner.client.message(session, "hi")
    await watch.message("Hello.")
    await watch.status("idle", start=len(watch.events) - 1)
    assert outline(watch) == [
        "subscribed",
        "idle",
        "append 1",
        "streaming",
        "activity",
        "text",
        "activity",
        "done",
        "append 2",
        "idle",
    ]
    phases = [
        event.patch.activity.phase
        for event in watch.events
        if isinstance(event, WsSessionPartial) and not isinstance(event.patch.activity, type(event.patch.done))
        and hasattr(event.patch.activity, "phase")
    ]  # fmt: skip
    assert phases[:2] == ["starting", "responding"]
    assert phases[-1] == "thinking"
    assert watch.text() == "Hello."


async def test_a_subscriber_resumes_where_it_was(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    for number in range(3):
        await owner.client.message(session, f"message {number}")
    watch = world.watch(owner.client, f"sessions/{session}", 4)
    await until(lambda: watch.seqs() == [5, 6], what="the rest")
    await owner.client.message(session, "one more")
    await until(lambda: watch.seqs() == [5, 6, 7, 8], what="live ones")


async def test_messages_while_a_subscriber_joins_leave_no_gap(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()

    async def talk() -> None:
        for number in range(8):
            await owner.client.message(session, f"message {number}")

    talking = asyncio.create_task(talk())
    watches: list[Watch] = []
    while not talking.done():
        watches.append(world.watch(world.at(owner.client, len(watches) % 2), f"sessions/{session}"))
        await watches[-1].kind(WsSessionChange)
    await talking
    for watch in watches:
        await until(lambda watch=watch: len(watch.seqs()) == 16, what=f"16 events, not {watch.seqs()}")
        assert watch.seqs() == list(range(1, 17))


async def test_the_run_key_follows_a_turn(world: World) -> None:
    gate = asyncio.Event()
    owner = await world.owner(Say(("a", "b"), gate=gate))
    session = await owner.session()
    live = world.watch(owner.client, f"sessions/{session}")
    turn = asyncio.create_task(owner.client.message(session, "hi"))
    await live.streamed("a")
    [run] = await owner.runs(session)
    watch = world.watch(world.at(owner.client, 1), f"runs/{run.id}")
    first = await watch.kind(WsRunChange)
    assert (first.value.id, first.value.status) == (run.id, "running")
    gate.set()
    await turn
    await watch.wait(lambda e: isinstance(e, WsRunChange) and e.value.status == "succeeded", what="the end")


async def test_the_account_key_tells_of_everything_own(world: World) -> None:
    owner = await world.owner()
    writer = await world.member(owner, "writer")
    account = world.watch(world.at(owner.client, 1), f"account/{owner.client.account}")
    members = world.watch(writer, f"account/{writer.account}")
    for watch in (account, members):
        await watch.kind(WsSubscribed)
    session = await owner.session()
    await owner.client.message(session, "hi")
    for watch in (account, members):
        await until(lambda watch=watch: watch.seqs() == [1, 2], what="the session's events")
        await until(lambda watch=watch: watch.hints().count("session-event") == 2, what="their hints")
        assert watch.hints().count("session-created") == 1
        assert watch.text() == "Hello."


@pytest.mark.parametrize(
    ("key", "status", "message"),
    [
        (f"sessions/{NOWHERE}", 404, "Session not found"),
        (f"agents/{NOWHERE}", 404, "Agent not found"),
        (f"runs/{NOWHERE}", 404, "Run not found"),
        ("account/z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX", 400, "Subscription key is not authorized"),
        ("nonsense", 400, "Subscription key is not authorized"),
        ("sessions/a/b", 400, "Subscription key is not authorized"),
    ],
)
async def test_a_key_that_is_not_for_everybody(world: World, key: str, status: int, message: str) -> None:
    watch = world.watch(world.client(), key)
    with refused(status, message):
        await watch.kind(WsSubscribed)


async def test_only_who_may_read_subscribes(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    await owner.client.message(session, "hi")
    [run] = await owner.runs(session)
    keys = {"Agent": f"agents/{owner.agent}", "Session": f"sessions/{session}", "Run": f"runs/{run.id}"}
    stranger: Any = world.client()
    for noun, key in keys.items():
        watch = world.watch(stranger, key)
        with refused(404, f"{noun} not found"):
            await watch.kind(WsSubscribed)
    reader = await world.member(owner, "reader")
    for key in keys.values():
        await world.watch(reader, key).kind(WsSubscribed)


async def test_delivery_ends_with_access(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    reader = await world.member(owner, "reader")
    seen = world.watch(reader, f"sessions/{session}")
    mine = world.watch(owner.client, f"sessions/{session}")
    for watch in (seen, mine):
        await watch.kind(WsSessionChange)
    account = world.watch(reader, f"account/{reader.account}")
    await account.kind(WsSubscribed)
    await owner.client.call("RemoveAgentCollaborator", agentId=owner.agent, accountId=reader.account)
    await until(lambda: "agent-invites-changed" in account.hints(), what="the removal")
    await owner.client.message(session, "among ourselves")
    await until(lambda: mine.seqs() == [1, 2], what="the owner's events")
    # A fence: events of one account come in order, and this one comes after what must not come.
    await reader.set_provider("fence", ModelProviderConfig(type="ollama"))
    await until(lambda: "model-provider-changed" in account.hints(), what="the fence")
    assert seen.seqs() == []
