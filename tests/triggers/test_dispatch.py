"""Carrying a firing out: what is asked of whom, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from libs.errors import Conflict, Internal, Invalid, NotFound, SeedError, Unavailable
from libs.hypermedia.server import AskFailed
from libs.protocol import json_bytes
from services.triggers.domain.firing import Activation, Fired, context
from services.triggers.monitor.carriers import Carriers
from services.triggers.monitor.dispatch import Dispatch

EMBED = {"block": {"id": "e", "type": "Embed", "link": "hm://a", "text": ""}}
TEXT = {"block": {"id": "p", "type": "Paragraph", "text": "Look."}}


class FakePeer:
    """Remembers what it was asked and answers `answer`, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, []

    def stub(self, _: Any) -> Any:
        names = ("StartTriggered", "ForgetTrigger", "DeliverSignal")
        return SimpleNamespace(**{name: name for name in names})

    async def call(self, method: Any, request: Any, **_: Any) -> Any:
        self.asked.append((method, request))
        if isinstance(self.answer, SeedError):
            raise self.answer
        return self.answer


class FakeStore:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        async def note(*values: Any) -> None:
            self.told.append((name, *(v["id"] if isinstance(v, dict) else v for v in values)))

        return note


class Scene:
    def __init__(self, *, sessions: Any = None, runs: Any = None) -> None:
        self.store = FakeStore()
        self.sessions = FakePeer(sessions or SimpleNamespace(session_id="s1"))
        self.runs = FakePeer(runs or SimpleNamespace(run_id="r1"))
        self.pages = {"hm://a": {"type": "document", "document": {"content": [TEXT | {"children": []}]}}}
        store: Any = self.store
        peers: list[Any] = [self.sessions, self.runs]
        self.dispatch = Dispatch(store, *peers, self.ask)

    async def ask(self, key: str, parameters: Mapping[str, str]) -> Any:
        if parameters["id"] not in self.pages:
            raise AskFailed("HTTP 404")
        return self.pages[parameters["id"]]

    async def carry_out(self, firing: Any) -> list[tuple[Any, ...]]:
        await self.dispatch.carry_out(firing)
        return self.store.told


def firing(*, prompt: list[Any] | None = None, continuation: Any = None, title: str = "") -> Any:
    told = context(
        Fired("t1", "Name", {"type": "x"}, prompt or [TEXT], "Look."), "f1", 7, Activation("k", {"n": 1}, "Sum")
    )
    return {
        "id": "f1", "tries": 0, "trigger_id": "t1", "account": "acc", "agent_id": "ag", "activity_key": "act",
        "context": json_bytes({"title": title, **told}),
        "continuation": None if continuation is None else json_bytes(continuation),
    }  # fmt: skip


async def test_a_session_is_started() -> None:
    scene = Scene()
    assert await scene.carry_out(firing(continuation={"kind": "newThread"}, title="Ending")) == [
        ("started", "f1", "s1")
    ]
    [(method, request)] = scene.sessions.asked
    assert method == "StartTriggered"
    assert (request.firing_id, request.trigger_id, request.owner, request.agent_id) == ("f1", "t1", "acc", "ag")
    assert request.title == "Name — Ending"
    message, summary, kept = (json.loads(x) for x in (request.message, request.summary, request.context))
    assert message["content"].startswith("Look.\n\n<trigger_context>") and '"activityKey": "act"' in message["content"]
    assert summary["firingId"] == "f1" and "prompt" not in summary
    assert kept == {**summary, "prompt": "Look.", "promptBlocks": [TEXT], "activity": {"n": 1}, "status": "created"}
    assert not scene.runs.asked


async def test_what_a_prompt_embeds_is_in_the_message_and_not_in_the_snapshot() -> None:
    scene = Scene()
    scene.pages["hm://a"]["document"]["content"] = [{"block": {"id": "x", "type": "Paragraph", "text": "Embedded."}}]  # pyright: ignore
    await scene.carry_out(firing(prompt=[TEXT, EMBED]))
    [(_, request)] = scene.sessions.asked
    assert "Embedded." in json.loads(request.message)["content"].partition("<trigger_context>")[0]
    assert json.loads(request.context)["prompt"] == "Look."
    assert request.title == "Name — Sum"
    scene.pages.clear()
    await scene.carry_out(firing(prompt=[TEXT, EMBED]))
    assert "hm://a" in json.loads(scene.sessions.asked[1][1].message)["content"]


@pytest.mark.parametrize("run_id", ["r1", ""])
async def test_a_run_is_woken_or_nobody_listens(run_id: str) -> None:
    scene = Scene(runs=SimpleNamespace(run_id=run_id))
    wake = {"kind": "wake", "signal": "go", "runId": "r1"}
    assert await scene.carry_out(firing(continuation=wake)) == [("woke", "f1", bool(run_id))]
    [(method, request)] = scene.runs.asked
    assert (method, request.delivery_id, request.account) == ("DeliverSignal", "f1", "acc")
    assert (request.run_id, request.signal, request.payload) == ("r1", "go", b'{"n":1}')
    await scene.carry_out(firing(continuation={"kind": "wake", "signal": "go", "payload": 5}))
    assert (scene.runs.asked[1][1].run_id, scene.runs.asked[1][1].payload) == ("", b"5")
    assert not scene.sessions.asked


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unavailable("away"), []),
        (NotFound("Agent not found"), [("drop_agent", "ag")]),
        (Invalid("bad"), [("failed", "f1", "bad")]),
        (Conflict("no"), [("failed", "f1", "no")]),
    ],
)
async def test_refusals(error: SeedError, told: list[Any]) -> None:
    assert await Scene(sessions=error).carry_out(firing()) == told


async def test_faults_may_pass() -> None:
    scene = Scene(sessions=Internal("Internal server error"))
    assert await scene.carry_out({**firing(), "tries": 7}) == []
    assert await scene.carry_out({**firing(), "tries": 8}) == [("failed", "f1", "Internal server error")]


async def test_what_is_carried_out_is_left_alone() -> None:
    scene = Scene()
    assert await scene.carry_out({**firing(), "context": None}) == []
    assert not scene.sessions.asked


async def test_sessions_forgets_what_is_deleted() -> None:
    scene = Scene()
    await scene.dispatch.forget("t1")
    assert scene.store.told == [("forgotten", "t1")]
    away = Scene(sessions=Unavailable("away"))
    await away.dispatch.forget("t1")
    assert away.store.told == []


async def test_carriers_do_a_few_at_once_and_outlive_failures() -> None:
    at_once, most, done = 0, 0, []
    go = asyncio.Event()

    async def carry_out(one: Any) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await go.wait()
        at_once -= 1
        done.append(one["id"])
        if one["id"] % 3 == 0:
            raise RuntimeError("broken")
        if one["id"] % 3 == 1:
            raise Unavailable("away")

    carriers = Carriers(carry_out)
    for n in range(40):
        sent: Any = {"id": n}
        carriers.send(sent)
    await asyncio.sleep(0)
    go.set()
    await carriers.close()
    assert sorted(done) == list(range(40)) and most == 16


async def test_carriers_close_in_time() -> None:
    never = asyncio.Event()

    async def carry_out(_: Any) -> None:
        await never.wait()

    carriers = Carriers(carry_out)
    sent: Any = {"id": 1}
    carriers.send(sent)
    async with asyncio.timeout(5):
        await carriers.close(0.01)
