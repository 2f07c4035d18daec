"""The Space index: what it shows, how long it is, and when it is asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seed.memory.v1 import memory_pb2, tools_pb2
from seed.triggers.v1 import triggers_pb2

from libs import events
from libs.errors import Unavailable
from libs.events import Bus
from libs.rpc import Caller, Peer, RpcServer, TokenSigner, TokenVerifier
from services.sessions.api import space as spaces
from services.sessions.api.space import SpaceIndexes
from services.sessions.domain.space import Space, ToolLine
from tests.sessions.world import INTERNAL_KEY, until

AGENT, OWNER = "6f1d0000-0000-4000-8000-000000000001", "z6MkOwner"


def test_an_empty_space() -> None:
    lines = Space().index(()).split("\n")
    assert (lines[0], lines[-1]) == ("<space>", "</space>") and lines[1].startswith("tools/ — ")
    assert lines[2:-1] == ["memory/ — empty", "triggers/ — none active"]


def test_what_is_offered_is_listed() -> None:
    tools = [
        ToolLine("double", "lambda", "Doubles."),
        ToolLine("search", "builtin", "Finds."),
        ToolLine("x__y", "mcp", "Of a server."),
    ]
    space = Space(files=3, entries=2, top=["a.md", "notes/ (2)"], tools=tools, triggers=["Morning"])
    text = space.index(())
    assert (
        "- double: Doubles. (authored)\n- x__y: Of a server.\n" in text and "search" not in text.split("tools/ — ")[2:]
    )
    assert "- search: Finds.\n" in space.index({"search"}) and "- search: Finds.\n" not in text
    assert "memory/ — 3 files: a.md, notes/ (2)\ntriggers/ — 1 active: Morning\n" in text


def test_twelve_files_sixteen_triggers_and_no_more() -> None:
    space = Space(files=40, entries=30, top=[f"f{n}" for n in range(30)], triggers=[f"t{n}" for n in range(20)])
    text = space.index(())
    assert "f11, and 18 more\n" in text and "t15, and 4 more\n" in text


def test_many_tools_are_counted() -> None:
    tools = [ToolLine(f"tool-{n}", "lambda", "x" * 140) for n in range(30)]
    text = Space(tools=tools).index(())
    assert len(text) <= 2048 and "- 30 tools\n" in text and "tool-1" not in text


names = st.text(min_size=1, max_size=600)


@given(
    st.lists(st.tuples(names, st.sampled_from(["lambda", "mcp", "builtin"]), names), max_size=20),
    st.lists(names, max_size=14),
    st.lists(names, max_size=20),
)
def test_it_is_short_and_nothing_in_it_ends_it(
    tools: list[tuple[str, str, str]], top: list[str], triggers: list[str]
) -> None:
    text = Space(
        files=len(top), entries=len(top), top=top, tools=[ToolLine(*t) for t in tools], triggers=triggers
    ).index({name for name, _, _ in tools})
    assert len(text) <= 2048
    assert text.count("</space>") == 1 and text.endswith("\n</space>") and text.startswith("<space>\n")


class Neighbours:
    """Memory and triggers; `calls` counts what they were asked."""

    def __init__(self) -> None:
        self.away, self.calls, self.names = False, 0, ["a.md"]
        self.gate: asyncio.Event | None = None

    async def Summary(self, request: memory_pb2.SummaryRequest, caller: Caller) -> memory_pb2.SummaryResponse:
        assert (caller.service, caller.account, request.agent_id) == ("sessions", OWNER, AGENT)
        self.calls += 1
        names = list(self.names)
        if self.gate is not None:
            await self.gate.wait()
        if self.away:
            raise Unavailable("away")
        top = [memory_pb2.Entry(path=name) for name in names]
        return memory_pb2.SummaryResponse(files=len(top), top=top, top_count=len(top))

    async def ListTools(self, request: tools_pb2.ListToolsRequest, caller: Caller) -> tools_pb2.ListToolsResponse:
        assert request.brief
        off = tools_pb2.Tool(name="off", kind="lambda", summary="Is off.")
        return tools_pb2.ListToolsResponse(
            tools=[off, tools_pb2.Tool(name="on", kind="lambda", summary="Is on.", enabled=True)]
        )

    async def ListTriggers(
        self, request: triggers_pb2.ListTriggersRequest, caller: Caller
    ) -> triggers_pb2.ListTriggersResponse:
        off = triggers_pb2.Trigger(name="Off")
        return triggers_pb2.ListTriggersResponse(triggers=[off, triggers_pb2.Trigger(name="On", enabled=True)])


class News:
    """A bus that says what it is told."""

    def __init__(self) -> None:
        self.connected = True
        self._hear: Callable[[str, bytes], None] | None = None
        self._restored: Any = None

    async def subscribe(self, subject: str, handler: Any) -> None:
        assert subject == events.SPACE_HINTS
        self._hear = handler

    def on_restored(self, callback: Any) -> None:
        self._restored = callback

    def tell(self, reason: str) -> None:
        subject, body = events.account_hint(OWNER, reason, agent_id=AGENT)
        assert self._hear is not None
        if subject.endswith(".space_hint"):
            self._hear(subject, body)

    async def back(self) -> None:
        await self._restored()


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


@dataclass
class House:
    neighbours: Neighbours
    news: News
    indexes: SpaceIndexes
    clock: Clock

    async def text(self) -> str:
        return await self.indexes.text(OWNER, AGENT, {}, None)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    neighbours, news, tokens = Neighbours(), News(), TokenSigner("sessions", INTERNAL_KEY)
    memory, triggers = (
        RpcServer(TokenVerifier(name, INTERNAL_KEY), host="127.0.0.1", port=0) for name in ("memory", "triggers")
    )
    memory.add(memory_pb2.DESCRIPTOR.services_by_name["MemoryService"], neighbours)
    memory.add(tools_pb2.DESCRIPTOR.services_by_name["ToolDocumentsService"], neighbours)
    triggers.add(triggers_pb2.DESCRIPTOR.services_by_name["TriggersService"], neighbours)
    await asyncio.gather(memory.start(), triggers.start())
    peers = [Peer(n, f"127.0.0.1:{s.port}", tokens) for n, s in (("memory", memory), ("triggers", triggers))]
    clock = Clock()
    indexes = SpaceIndexes(peers[0], peers[1], cast(Bus, news), clock)
    await indexes.listen()
    yield House(neighbours, news, indexes, clock)
    for peer in peers:
        await peer.close()
    await asyncio.gather(memory.stop(0), triggers.stop(0))


async def test_it_is_asked_for_once_until_something_changes(house: House) -> None:
    text = await house.text()
    assert (
        "a.md" in text
        and "- on: Is on. (authored)" in text
        and "1 active: On" in text
        and "ff" not in text.lower().replace("off.", "")
    )
    house.neighbours.names = ["b.md"]
    assert await house.text() == text and house.neighbours.calls == 1
    for reason in ("agent-updated", "session-event"):
        house.news.tell(reason)
    assert await house.text() == text
    for n, reason in enumerate(("agent-memory-changed", "agent-tools-changed", "trigger-created"), 2):
        house.news.tell(reason)
        assert "b.md" in await house.text() and house.neighbours.calls == n
    house.clock.now += spaces.FRESH_MS + 1
    await house.text()
    await house.news.back()
    await house.text()
    assert house.neighbours.calls == 6


async def test_what_changes_while_it_is_asked_for_is_not_missed(house: House) -> None:
    house.neighbours.gate = asyncio.Event()
    asking = [asyncio.create_task(house.text()) for _ in range(3)]
    await until(lambda: house.neighbours.calls)
    house.neighbours.names = ["b.md"]
    house.news.tell("agent-memory-changed")
    house.neighbours.gate.set()
    assert all("a.md" in text for text in await asyncio.gather(*asking)) and house.neighbours.calls == 1
    assert "b.md" in await house.text()


async def test_a_turn_does_not_wait_for_services_that_are_away(house: House) -> None:
    house.neighbours.away = True
    assert await house.text() == "" and await house.text() == "" and house.neighbours.calls == 1
    house.neighbours.away = False
    house.clock.now += spaces.AGAIN_MS + 1
    assert "a.md" in await house.text()
    # Changes are not heard meanwhile.
    house.news.connected = False
    house.neighbours.names = ["b.md"]
    assert "b.md" in await house.text() and house.neighbours.calls == 3
