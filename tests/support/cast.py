"""A model that plays every conversation of a tree of delegated work: each by the message it began with."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from libs.protocol.runs import RunInfo
from libs.stack.scripted import Answer, Calls, Say
from tests.support.kit import Owner, World, until

OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
"""What a typed child is asked for."""
ENDED = ("succeeded", "failed", "canceled")


def said_by_users(body: dict[str, Any]) -> list[str]:
    """Texts of the user's messages in a request, without who sent them."""
    found: list[str] = []
    for message in body["messages"]:
        if message["role"] == "user":
            content = message["content"]
            whole = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            found.append(whole.rpartition("</message_sender>\n\n")[2])
    return found


class Cast:
    """`parts` maps the first message of a conversation to its answers; the last one is given again and again."""

    def __init__(self, parts: dict[str, Answer | Sequence[Answer]]) -> None:
        self.parts = {
            opening: deque([part] if isinstance(part, str | Say | Calls) or not isinstance(part, Sequence) else part)
            for opening, part in parts.items()
        }
        self.asked: dict[str, list[dict[str, Any]]] = {opening: [] for opening in parts}
        """Requests by conversation, oldest first."""

    def __call__(self, body: dict[str, Any]) -> Answer:
        opening = said_by_users(body)[0]
        self.asked[opening].append(body)
        part = self.parts[opening]
        return part.popleft() if len(part) > 1 else part[0]


def delegate(brief: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    """A call of `delegate`; `wait=False` stands for its `await`."""
    if "wait" in more:
        more["await"] = more.pop("wait")
    return ("delegate", {"brief": brief, **more})


def held() -> Say:
    """An answer that stops in the middle until it is let go."""
    return Say(("half", " whole"), gate=asyncio.Event())


def let_go(say: Say) -> None:
    """Open the gate of a held answer."""
    assert say.gate is not None
    say.gate.set()


def plan(*steps: tuple[str, str, str]) -> tuple[str, dict[str, Any]]:
    """A call of `plan` with steps of id, label and status."""
    return ("plan", {"steps": [{"id": i, "label": label, "status": status} for i, label, status in steps]})


class Tree:
    """A session whose first message is answered with delegated work."""

    def __init__(self, owner: Owner, cast: Cast, session: str) -> None:
        self.owner, self.cast, self.session = owner, cast, session
        self.call: asyncio.Task[Any] | None = None

    @classmethod
    async def of(cls, world: World, parts: dict[str, Any], **definition: Any) -> Tree:
        """A session of a new owner."""
        cast = Cast(parts)
        owner = await world.owner(cast, **definition)
        return cls(owner, cast, await owner.session())

    def say(self, text: str = "go") -> asyncio.Task[Any]:
        """Send a message and do not wait for its answer."""
        self.call = asyncio.create_task(self.owner.client.message(self.session, text))
        return self.call

    async def run(self) -> RunInfo:
        """The oldest run of the session."""

        async def probe() -> RunInfo | None:
            found = await self.owner.runs(self.session)
            return found[-1] if found else None

        found = await until(probe, what="a run")
        assert found is not None
        return found

    async def runs(self) -> list[RunInfo]:
        """All runs of the tree, oldest first."""
        return (await self.owner.client.call("ListRuns", rootRunId=(await self.run()).id)).runs

    async def child(self, title: str) -> RunInfo | None:
        """The run of that title."""
        return next((run for run in await self.runs() if run.title == title), None)

    async def reached(self, status: str, title: str = "", within_s: float = 20.0) -> RunInfo:
        """The root, or the run of that title, once it has the status."""

        async def probe() -> RunInfo | None:
            run = await self.child(title) if title else await self.run()
            return run if run is not None and run.status == status else None

        found = await until(probe, within_s, f"{title or 'the root'} {status}")
        assert found is not None
        return found

    async def ended(self, within_s: float = 20.0) -> list[RunInfo]:
        """All runs of the tree once all are over."""

        async def probe() -> list[RunInfo] | None:
            runs = await self.runs()
            return runs if all(run.status in ENDED for run in runs) else None

        found = await until(probe, within_s, "the end of the tree")
        assert found is not None
        return found

    async def payloads(self, session: str = "") -> list[dict[str, Any]]:
        """The log of the session, or of another one, without what model messages tell of themselves."""
        return [dict(event.event) for event in await self.owner.events(session or self.session)]

    async def results(self, session: str = "") -> list[dict[str, Any]]:
        """The tool results in the log."""
        return [p for p in await self.payloads(session) if p["type"] == "tool_result"]

    async def answers(self) -> list[dict[str, Any]]:
        """What the delegated calls were answered with."""
        return [p["output"] for p in await self.results() if p["name"] == "delegate" and "output" in p]
