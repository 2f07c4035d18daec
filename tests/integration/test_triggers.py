"""Triggers over HTTP: the six actions, schedules, ends of runs and webhooks that fire sessions whose model answers."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from libs import wire
from libs.client import ApiError
from libs.protocol.triggers import AgentTriggerInfo
from libs.stack import Stack
from libs.stack.scripted import Calls, Fail
from tests.integration.conftest import ENVIRONMENT
from tests.support.kit import NOWHERE, Owner, World, refused, until

QUICK = {
    **ENVIRONMENT,
    "SEED_AGENTS_ACTIVITY_POLL_INTERVAL_MS": "200",
    "SEED_AGENTS_ENDED_RUNS_POLL_MS": "50",
    "SEED_AGENTS_FIRING_SWEEP_MS": "1000",
    "SEED_AGENTS_WEBHOOK_DELIVERIES": "20",
    # Nobody listens there: the feed is away.
    "SEED_AGENTS_HM_SERVER_URL": "http://127.0.0.1:9",
}
MENTION = {"type": "user-mention", "mentionedAccounts": ["z6MkSomebody"]}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose clocks are looked at often."""
    with Stack(tmp_path_factory.mktemp("quick") / "data", 0, edges=1, workers=1, env=QUICK) as running:
        yield running


@pytest.fixture
async def world(quick: Stack) -> AsyncIterator[World]:
    async with World(quick.urls) as made:
        yield made


def plain(**more: Any) -> dict[str, Any]:
    return {"name": "T", "enabled": False, "prompt": "Look.", "source": {"type": "run-completed"}, **more}


def now() -> int:
    return int(time.time() * 1000)


async def create(owner: Owner, **more: Any) -> AgentTriggerInfo:
    return (await owner.client.call("CreateAgentTrigger", agentId=owner.agent, trigger=plain(**more))).trigger


async def get(owner: Owner, trigger_id: str) -> Any:
    return await owner.client.call("GetAgentTrigger", triggerId=trigger_id)


async def fired(owner: Owner, trigger_id: str, times: int = 1) -> Any:
    """The answer to GetAgentTrigger once it has fired so often."""

    async def probe() -> Any:
        found = await get(owner, trigger_id)
        done = [firing for firing in found.firings if firing.status != "created" or isinstance(firing.session_id, str)]
        return found if len(done) >= times else None

    return await until(probe, what=f"{times} firings")


async def test_a_life(world: World) -> None:
    owner = await world.owner()
    watch = world.watch(owner.client, f"account/{owner.client.account}")
    before = now()
    first = await create(owner)
    assert (first.name, first.enabled, first.agent_id, first.account) == ("T", False, owner.agent, owner.client.account)
    assert before - 1 <= first.created_at == first.updated_at <= now() + 1
    blocks: Any = first.prompt
    assert blocks[0].block["text"] == "Look."
    second = await create(owner, name="U", source=MENTION)
    assert [t.id for t in (await list_of(owner)).triggers] == [second.id, first.id]
    changed = (await owner.client.call("UpdateAgentTrigger", triggerId=first.id, patch={"name": "V"})).trigger
    assert changed.name == "V" and changed.updated_at > first.updated_at and changed.source == first.source
    assert [t.id for t in (await list_of(owner)).triggers] == [first.id, second.id]
    found = await get(owner, first.id)
    assert (found.trigger, found.sessions, found.firings) == (changed, [], [])
    await owner.client.call("DeleteAgentTrigger", triggerId=first.id)
    with refused(404, "Agent trigger not found"):
        await get(owner, first.id)
    wanted = {"trigger-created", "trigger-updated", "trigger-deleted"}
    await until(lambda: wanted <= set(watch.hints()), what="the hints")


async def list_of(owner: Owner) -> Any:
    return await owner.client.call("ListAgentTriggers", agentId=owner.agent)


async def test_who_may_do_what(world: World) -> None:
    owner = await world.owner()
    trigger = await create(owner, source={"type": "webhook"})
    reader, writer, stranger = await world.member(owner, "reader"), await world.member(owner, "writer"), world.client()
    for call in (("GetAgentTrigger", {}), ("UpdateAgentTrigger", {"patch": {}}), ("DeleteAgentTrigger", {})):
        with refused(404, "Agent trigger not found"):
            await stranger.call(call[0], triggerId=trigger.id, **call[1])
    for action in ("ListAgentTriggers", "CreateAgentTrigger"):
        with refused(404, "Agent not found"):
            await stranger.call(action, agentId=owner.agent)
    assert not isinstance((await reader.call("GetAgentTrigger", triggerId=trigger.id)).webhook_secret, str)
    assert isinstance((await writer.call("GetAgentTrigger", triggerId=trigger.id)).webhook_secret, str)
    # Access comes before validation.
    for action, fields in (
        ("CreateAgentTrigger", {"agentId": owner.agent}),
        ("UpdateAgentTrigger", {"triggerId": trigger.id}),
        ("DeleteAgentTrigger", {"triggerId": trigger.id}),
    ):
        with refused(403, re.compile("")):
            await reader.call(action, **fields)
    assert (await writer.call("UpdateAgentTrigger", triggerId=trigger.id, patch={"name": "W"})).trigger.name == "W"


async def test_refusals(world: World) -> None:
    owner = await world.owner()
    trigger = await create(owner)
    with refused(400, "Agent trigger is required"):
        await owner.client.call("CreateAgentTrigger", agentId=owner.agent)
    with refused(400, "Trigger source type is unsupported"):
        await create(owner, source={"type": "moon"})
    with refused(400, "Agent trigger patch is required"):
        await owner.client.call("UpdateAgentTrigger", triggerId=trigger.id)
    with refused(400, "Agent trigger patch is empty"):
        await owner.client.call("UpdateAgentTrigger", triggerId=trigger.id, patch={})
    for value in (NOWHERE, "a\0b", "%"):
        with refused(404, "Agent trigger not found"):
            await get(owner, value)
    with refused(400, "Trigger ID is required"):
        await owner.client.call("GetAgentTrigger")
    for stale in (trigger.updated_at - 1, "x", None, -1):
        with refused(409, re.compile("changed elsewhere")):
            await owner.client.call(
                "UpdateAgentTrigger", triggerId=trigger.id, patch={"name": "x"}, expectedUpdatedAt=stale
            )
    fresh = await owner.client.call(
        "UpdateAgentTrigger", triggerId=trigger.id, patch={"name": "x"}, expectedUpdatedAt=trigger.updated_at
    )
    assert fresh.trigger.name == "x"


async def test_the_same_request_makes_one(world: World) -> None:
    owner = await world.owner()

    async def made(name: str, client_id: str = "r") -> AgentTriggerInfo:
        fields = {"agentId": owner.agent, "trigger": plain(name=name, source={"type": "webhook"})}
        return await owner.client.call("CreateAgentTrigger", clientRequestId=client_id, **fields)

    answers = await asyncio.gather(*(made("A") for _ in range(4)))
    assert all(answer == answers[0] for answer in answers)
    with refused(409, "Client request ID payload mismatch"):
        await made("B")
    assert (await made("A", "other")).trigger.id != answers[0].trigger.id
    assert len((await list_of(owner)).triggers) == 2


async def test_a_schedule_fires_a_session_whose_model_answers(world: World) -> None:
    owner = await world.owner("Done as asked.")
    past = now() - 60_000
    trigger = await create(
        owner, name="Clock", enabled=True, source={"type": "schedule", "schedule": {"kind": "once", "runAt": past}}
    )
    found = await fired(owner, trigger.id)
    [session] = found.sessions
    [firing] = found.firings
    assert (firing.session_id, firing.status) == (session.id, "created")
    assert re.fullmatch(r"Scheduled once at .*Z", firing.activity_summary)
    assert re.fullmatch(r"Clock — One-time schedule at .*Z", session.title)
    assert found.trigger.enabled is False and found.trigger.last_fired_at >= trigger.created_at
    await owner.at_rest(session.id)
    (asked, text), answer = await owner.said(session.id)
    assert asked == "user" and answer == ("assistant", "Done as asked.")
    assert text.startswith("Look.\n\n<trigger_context>\n{\n") and text.endswith("</trigger_instructions>")
    assert f'"scheduledAt": {past}' in text and '"activityKey": null' in text and trigger.id in text
    [run] = await owner.runs(session.id)
    assert (run.id, run.origin, run.status) == (f"firing-{firing.firing_id}", "trigger", "succeeded")
    info = await owner.client.session(session.id)
    started = info.session.started_by_trigger
    assert (started.trigger_id, started.firing_id, started.trigger_name) == (trigger.id, firing.firing_id, "Clock")
    assert started.activity_key == f"schedule:{trigger.id}:{past}"
    context: Any = info.trigger_context
    assert (context.prompt, context.status, context.source) == ("Look.", "created", trigger.source)
    assert context.activity["type"] == "schedule" and context.prompt_blocks == trigger.prompt
    # A snapshot: what is edited later does not change it. What is deleted is not told any more.
    await owner.client.call("UpdateAgentTrigger", triggerId=trigger.id, patch={"name": "Other", "prompt": "No."})
    info = await owner.client.session(session.id)
    assert info.session.started_by_trigger == started and info.trigger_context == context
    await owner.client.call("DeleteAgentTrigger", triggerId=trigger.id)

    async def forgotten() -> bool:
        later = await owner.client.session(session.id)
        return not later.session.started_by_trigger and not later.trigger_context

    await until(forgotten, what="forgotten")


async def test_once_moved_and_enabled_again_is_due_again(world: World) -> None:
    owner = await world.owner()

    def once(at: int) -> dict[str, Any]:
        return {"type": "schedule", "schedule": {"kind": "once", "runAt": at}}

    trigger = await create(owner, enabled=True, source=once(5_000))
    await fired(owner, trigger.id)
    same = (await owner.client.call("UpdateAgentTrigger", triggerId=trigger.id, patch={"enabled": True})).trigger
    assert same.enabled is True
    await owner.client.call("UpdateAgentTrigger", triggerId=trigger.id, patch={"enabled": True, "source": once(6_000)})
    found = await fired(owner, trigger.id, 2)
    assert len(found.firings) == 2 and found.trigger.enabled is False


async def test_a_failed_run_is_told_to_its_firing(world: World) -> None:
    owner = await world.owner(Fail(400, "no such thing"))
    trigger = await create(
        owner, enabled=True, source={"type": "schedule", "schedule": {"kind": "once", "runAt": 1_000}}
    )

    async def told() -> Any:
        found = await get(owner, trigger.id)
        return found if found.firings and found.firings[0].status == "error" else None

    found = await until(told, 60, what="the failure")
    [firing] = found.firings
    assert "no such thing" in firing.error and firing.error == found.trigger.last_error
    [session] = found.sessions
    context: Any = (await owner.client.session(session.id)).trigger_context
    assert (context.status, "no such thing" in context.error) == ("error", True)
    patched = await owner.client.call("UpdateAgentTrigger", triggerId=trigger.id, patch={"name": "x"})
    assert not isinstance(patched.trigger.last_error, str)


async def test_ends_of_runs_chain_and_never_circle(world: World) -> None:
    owner = await world.owner("ok")
    ended = {"type": "run-completed"}
    titled = {"titleMatch": "ANY —", "status": "succeeded"}
    any_end = await create(owner, name="Any", enabled=True, source=ended)
    named = await create(owner, name="Named", enabled=True, source={**ended, **titled})
    other = await create(owner, name="Other", enabled=True, source={**ended, "agentId": NOWHERE})
    failed = await create(owner, name="Failed", enabled=True, source={**ended, "status": "failed"})
    session = await owner.session()
    await owner.client.message(session, "Begin")
    [first] = await owner.runs(session)
    # Begin → Any; Any's run → Named; Named's run → nothing: Any is behind it, and it is not called so.
    one = await fired(owner, any_end.id)
    two = await fired(owner, named.id)
    assert [f.activity_summary for f in one.firings] == ["Begin succeeded"]
    assert one.sessions[0].title == "Any — Begin succeeded"
    assert [f.activity_summary for f in two.firings] == ["Any — Begin succeeded succeeded"]
    last = two.sessions[0].id
    await owner.at_rest(last)
    text = (await owner.said(one.sessions[0].id))[0][1]
    assert f'"runId": "{first.id}"' in text and f'"sessionId": "{session}"' in text
    # A later run that nothing fired tells when all before it are dealt with.
    await owner.client.message(session, "Again")
    found = await fired(owner, any_end.id, 2)
    assert [f.activity_summary for f in found.firings] == ["Again succeeded", "Begin succeeded"]
    for trigger in (other, failed):
        assert (await get(owner, trigger.id)).firings == []


async def test_what_a_triggered_run_delegates_fires_nothing_again(world: World) -> None:
    owner = await world.owner("child or end")
    trigger = await create(owner, name="Any", enabled=True)
    owner.provider.script.append("first")
    owner.provider.script.append(Calls([("delegate", {"brief": "Help."})]))
    session = await owner.session()
    await owner.client.message(session, "Begin")
    found = await fired(owner, trigger.id)
    await owner.at_rest(found.sessions[0].id)
    await owner.client.message(session, "Marker")
    found = await fired(owner, trigger.id, 2)
    assert sorted(f.activity_summary for f in found.firings) == ["Begin succeeded", "Marker succeeded"]


class Hook:
    """A webhook trigger and a client without a key."""

    def __init__(self, url: str, trigger: str, secret: str, http: aiohttp.ClientSession) -> None:
        self.trigger, self.secret, self._http = trigger, secret, http
        self._base = f"{url}/agents/api/webhooks"

    async def post(self, body: str = "{}", *, path: str | None = None, **headers: str) -> tuple[int, Any, Any]:
        path = f"{self.trigger}/{self.secret}" if path is None else path
        sent = {"Content-Type": "application/json", **{key.replace("_", "-"): value for key, value in headers.items()}}
        async with self._http.post(f"{self._base}/{path}", data=body.encode(), headers=sent) as answer:
            return answer.status, await answer.json(content_type=None), answer.headers


@pytest.fixture
async def hook(world: World, quick: Stack) -> AsyncIterator[tuple[Owner, Hook]]:
    owner = await world.owner("Got it.")
    made = await owner.client.call(
        "CreateAgentTrigger", agentId=owner.agent, trigger=plain(enabled=True, source={"type": "webhook"})
    )
    async with aiohttp.ClientSession() as http:
        yield owner, Hook(quick.url, made.trigger.id, made.webhook_secret, http)


async def test_a_delivery_fires_with_its_payload(hook: tuple[Owner, Hook]) -> None:
    owner, to = hook
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", to.secret)
    assert (await get(owner, to.trigger)).webhook_secret == to.secret
    status, body, headers = await to.post('{"order": 7}')
    assert (status, body) == (202, {"accepted": True, "duplicate": False})
    assert headers["Content-Type"] == "application/json"
    status, _, _ = await to.post("[1]", path=to.trigger, Authorization=f"Bearer {to.secret}")
    assert status == 202
    found = await fired(owner, to.trigger, 2)
    texts = [(await owner.said(session.id))[0][1] for session in found.sessions]
    assert sum('"order": 7' in text for text in texts) == 1
    contexts = [(await owner.client.session(session.id)).trigger_context for session in found.sessions]
    assert {str(context.activity["payload"]) for context in contexts} == {"{'order': 7}", "[1]"}  # pyright: ignore


async def test_a_delivery_with_a_key_counts_once(hook: tuple[Owner, Hook]) -> None:
    owner, to = hook
    answers = await asyncio.gather(*(to.post('{"a": 1}', Idempotency_Key="k1") for _ in range(5)))
    assert sorted(body["duplicate"] for _, body, _ in answers) == [False, True, True, True, True]
    status, body, _ = await to.post('{"a": 2}', Idempotency_Key="k1")
    assert status == 409 and body["error"]
    assert len((await fired(owner, to.trigger)).firings) == 1


async def test_deliveries_refused(hook: tuple[Owner, Hook]) -> None:
    owner, to = hook
    for path in (f"{to.trigger}/x", to.trigger, f"{NOWHERE}/{to.secret}", f"%00/{to.secret}", "", f"{to.trigger}/a/b"):
        status, body, _ = await to.post(path=path)
        assert (status, body) == (404, {"error": "Webhook not found"}), path
    assert (await to.post("{"))[0] == 400
    assert (await to.post("{}", Content_Type="text/plain"))[0] == 415
    assert (await to.post("{}", Content_Encoding="gzip"))[0] == 415
    assert (await to.post('"' + "x" * 300_000 + '"'))[0] == 413
    assert (await to.post("{}", Idempotency_Key="x" * 300))[0] == 400
    await owner.client.call("UpdateAgentTrigger", triggerId=to.trigger, patch={"enabled": False})
    assert (await to.post())[0] == 404
    patch = {"enabled": True, "source": {"type": "run-completed", "agentId": NOWHERE}}
    await owner.client.call("UpdateAgentTrigger", triggerId=to.trigger, patch=patch)
    assert (await to.post())[0] == 404
    await owner.client.call("UpdateAgentTrigger", triggerId=to.trigger, patch={"source": {"type": "webhook"}})
    renewed = (await get(owner, to.trigger)).webhook_secret
    assert renewed != to.secret and (await to.post())[0] == 404
    assert (await get(owner, to.trigger)).firings == []


async def test_deliveries_are_limited(hook: tuple[Owner, Hook]) -> None:
    owner, to = hook
    await owner.client.call(
        "UpdateAgentTrigger",
        triggerId=to.trigger,
        patch={"continuation": {"kind": "wake", "signal": "go"}},
    )
    statuses = [await to.post(str(n)) for n in range(24)]
    assert [status for status, _, _ in statuses[:20]] == [202] * 20
    assert statuses[-1][0] == 429 and int(statuses[-1][2]["Retry-After"]) >= 1
    found = await fired(owner, to.trigger, 20)
    assert {firing.status for firing in found.firings} == {"no-listener"}
    assert not isinstance(found.trigger.last_fired_at, int) and found.sessions == []


async def test_a_deleted_agent_takes_its_triggers_along(world: World) -> None:
    owner = await world.owner()
    trigger = await create(owner)
    await owner.client.call("DeleteAgent", agentId=owner.agent)

    async def gone() -> bool:
        try:
            await get(owner, trigger.id)
        except ApiError as e:
            return e.message == "Agent trigger not found"
        return False

    await until(gone, what="gone")


async def test_an_agent_of_another_account_is_not_found(world: World) -> None:
    """Ids of another account's agent are not found, whatever else is right."""
    owner, other = await world.owner(), await world.owner()
    with refused(404, "Agent not found"):
        await other.client.call(
            "CreateAgentTrigger", agentId=owner.agent, trigger=plain(), clientRequestId=str(uuid.uuid4())
        )


async def test_old_clients_never_see_half_a_trigger(world: World) -> None:
    owner = await world.owner()
    sources = [{"type": "comment-reply", "repliedToAccounts": ["a"]}, MENTION]
    activity = {"type": "activity", "conditions": [{"source": source} for source in sources]}
    whole, known = await create(owner, source=activity), await create(owner, source=MENTION)

    async def old(action: str, **fields: Any) -> Any:
        sent = wire.sign_envelope(owner.client.signer.key, {"_": action, **fields}, protocol=2)
        return await owner.client.send_envelope(sent, mutating=False)

    assert [t["id"] for t in (await old("ListAgentTriggers", agentId=owner.agent))["triggers"]] == [known.id]
    patches = {"triggerId": known.id, "patch": {"source": activity}}
    combined = {"triggerId": known.id, "otherTriggerId": whole.id}
    for action, fields in (
        ("GetAgentTrigger", {"triggerId": whole.id}),
        ("UpdateAgentTrigger", {"triggerId": whole.id, "patch": {"name": "x"}}),
        ("UpdateAgentTrigger", patches),
        ("CreateAgentTrigger", {"agentId": owner.agent, "trigger": plain(source=activity)}),
        ("CombineAgentTriggers", combined),
    ):
        with refused(426, re.compile("newer client"), "protocol_too_old"):
            await old(action, **fields)
    assert len((await list_of(owner)).triggers) == 2
