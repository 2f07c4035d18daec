"""What the integration tests are written in: a world of clients, scripted providers and agents over the public edge."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Self, TypeVar

import msgspec
import pytest

from libs.client import ApiError, Client, ClientError, Key, Signer, Subscription
from libs.protocol import WsEvent
from libs.protocol.agents import AgentDefinition
from libs.protocol.runs import RunInfo
from libs.protocol.secrets import ModelProviderConfig
from libs.protocol.sessions import SessionEvent, SessionInfo
from libs.protocol.ws import WsSessionAppend, WsSessionChange, WsSessionPartial
from libs.stack.scripted import MODEL, Reply, ScriptedProvider
from tests.security.collected import secret

T = TypeVar("T")
KEY = secret("scripted")
"""The key of every scripted provider."""
NOWHERE = "00000000-0000-4000-8000-000000000000"
"""An id that nothing has."""


async def until(probe: Callable[[], T | Awaitable[T]], within_s: float = 20.0, what: str = "the condition") -> T:
    """What `probe` gives once that is true; AssertionError when it is not within so many seconds."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        found: Any = probe()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"{what}: not within {within_s} s, last {found!r}"
        await asyncio.sleep(0.02)


@contextmanager
def refused(status: int, message: str | re.Pattern[str], code: str | None = None) -> Iterator[None]:
    """What is done inside must be refused, with exactly this."""
    with pytest.raises(ApiError) as caught:
        yield
    error = caught.value
    matches = message == error.message if isinstance(message, str) else message.search(error.message)
    assert (error.status, bool(matches), error.code) == (status, True, code), f"{error} {error.code}, not {message!r}"


def text(*parts: str, **more: Any) -> list[dict[str, Any]]:
    """Message content of text parts."""
    return [{"type": "text", "text": part, **more} for part in parts]


class Watch:
    """A subscription read in the background: `events` holds all of them so far."""

    def __init__(self, client: Client, key: str, after_seq: int | None = None) -> None:
        self.key = key
        self.events: list[WsEvent] = []
        self.error: Exception | None = None
        self._subscription: Subscription = client.subscribe(key, after_seq)
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for event in self._subscription:
                async with self._news:
                    self.events.append(event)
                    self._news.notify_all()
        except ClientError as e:
            async with self._news:
                self.error = e
                self._news.notify_all()

    async def wait(
        self, wanted: Callable[[Any], object], within_s: float = 20.0, what: str = "the event", start: int = 0
    ) -> Any:
        """The first event from index `start` on that is wanted."""

        async def look() -> WsEvent:
            at = start
            async with self._news:
                while True:
                    while at < len(self.events):
                        if wanted(self.events[at]):
                            return self.events[at]
                        at += 1
                    if self.error is not None:
                        raise self.error
                    await self._news.wait()

        try:
            async with asyncio.timeout(within_s):
                return await look()
        except TimeoutError:
            raise AssertionError(f"{self.key}: {what} not within {within_s} s; last: {self.events[-4:]}") from None

    async def kind(self, kind: type[T], **within: float) -> T:
        """The first event of that type."""
        return await self.wait(lambda event: isinstance(event, kind), what=kind.__name__, **within)

    async def status(self, status: str, start: int = 0) -> SessionInfo:
        """The first `change` of a session with that status."""

        def wanted(event: WsEvent) -> bool:
            return isinstance(event, WsSessionChange) and event.value.status == status

        return (await self.wait(wanted, what=f"status {status}", start=start)).value

    async def message(self, content: str, role: str = "assistant", within_s: float = 20.0) -> WsSessionAppend:
        """The append of a message with that content."""

        def wanted(event: WsEvent) -> bool:
            if not isinstance(event, WsSessionAppend):
                return False
            payload = msgspec.json.decode(event.event.event)
            return payload.get("role") == role and payload.get("content") == content

        return await self.wait(wanted, within_s, f"the {role}'s {content!r}")

    async def streamed(self, wanted: str) -> str:
        """Wait until the text so far is `wanted`; returns it."""
        await self.wait(lambda _: self.text() == wanted, what=f"streamed {wanted!r}")
        return wanted

    def seqs(self) -> list[int]:
        """The numbers of the durable session events, in order of arrival."""
        return [e.event.seq for e in self.events if isinstance(e, WsSessionAppend)]

    def ids(self) -> list[str]:
        """Their ids."""
        return [e.event.id for e in self.events if isinstance(e, WsSessionAppend)]

    def text(self) -> str:
        """All streamed text."""
        return "".join(
            e.patch.text_delta
            for e in self.events
            if isinstance(e, WsSessionPartial) and isinstance(e.patch.text_delta, str)
        )

    def hints(self) -> list[str]:
        """The reasons of account hints."""
        return [e.value.reason for e in self.events if hasattr(e, "value") and hasattr(e.value, "reason")]  # pyright: ignore[reportAttributeAccessIssue]

    async def close(self) -> None:
        """Stop reading."""
        await self._subscription.aclose()
        await self._task


class Owner:
    """An account with a scripted provider and an agent."""

    def __init__(self, world: World, client: Client, provider: ScriptedProvider) -> None:
        self.world = world
        self.client = client
        self.provider = provider
        self.agent = ""

    def definition(self, **change: Any) -> AgentDefinition:
        """The agent's definition, with changes."""
        plain: dict[str, Any] = {
            "name": "Scripted agent",
            "system_prompt": "Be brief.",
            "model_provider": "scripted",
            "model": MODEL,
        }
        return AgentDefinition(**{**plain, **change})

    async def session(self, title: str | None = None) -> str:
        """A fresh session of the agent."""
        return await self.client.create_session(self.agent, title)

    async def events(self, session: str) -> Sequence[SessionEvent]:
        """The log of a session."""
        return (await self.client.session(session)).events

    async def said(self, session: str) -> list[tuple[str, str]]:
        """The messages of a session as (role, content)."""
        return [
            (e.event["role"], e.event["content"]) for e in await self.events(session) if e.event["type"] == "message"
        ]

    async def runs(self, session: str) -> list[RunInfo]:
        """The root runs of a session, newest first."""
        return (await self.client.call("ListRuns", sessionId=session)).runs

    async def status(self, session: str) -> str:
        """The status of a session."""
        return (await self.client.session(session)).session.status

    async def at_rest(self, session: str, within_s: float = 30.0) -> SessionInfo:
        """Wait until nothing runs in the session."""

        async def probe() -> SessionInfo | None:
            runs = await self.runs(session)
            if any(run.status not in ("succeeded", "failed", "canceled") for run in runs):
                return None
            info = (await self.client.session(session)).session
            return info if info.status != "streaming" else None

        found = await until(probe, within_s, "the session at rest")
        assert found is not None
        return found


class World:
    """Makes clients, owners and watches of one server (at one or more edges), and closes them in the end."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = list(urls)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    def client(self, edge: int = 0, key: Key | Signer | None = None, account: str | None = None) -> Client:
        """A client of that edge, with a key of its own unless one is given."""
        client = Client(self.urls[edge], key or Key.generate(), account)
        self._open.push_async_callback(client.close)
        return client

    def at(self, client: Client, edge: int) -> Client:
        """The same account and key at another edge."""
        other = client.at(self.urls[edge])
        self._open.push_async_callback(other.close)
        return other

    def watch(self, client: Client, key: str, after_seq: int | None = None) -> Watch:
        """A subscription read in the background."""
        watch = Watch(client, key, after_seq)
        self._open.push_async_callback(watch.close)
        return watch

    async def provider(self, reply: Reply = "Hello.", **options: Any) -> ScriptedProvider:
        """A scripted provider."""
        return await self._open.enter_async_context(ScriptedProvider(reply, **options))

    async def use(self, client: Client, provider: ScriptedProvider, name: str = "scripted") -> None:
        """Store a key and the provider's configuration for the client's account."""
        await client.set_secret(f"{name}-key", KEY)
        config = ModelProviderConfig(type="custom", base_url=provider.url, secret_refs={"apiKey": f"{name}-key"})
        await client.set_provider(name, config)

    async def owner(self, reply: Reply = "Hello.", edge: int = 0, **definition: Any) -> Owner:
        """An account with a provider that says `reply` and an agent."""
        owner = Owner(self, self.client(edge), await self.provider(reply))
        await self.use(owner.client, owner.provider)
        owner.agent = await owner.client.create_agent(owner.definition(**definition))
        return owner

    async def member(self, owner: Owner, role: str) -> Client:
        """A client that accepted an invitation to the owner's agent: `reader` or `writer`."""
        client = self.client()
        await owner.client.call("InviteAgentCollaborator", agentId=owner.agent, accountId=client.account, role=role)
        await client.call("AcceptAgentInvite", agentId=owner.agent)
        return client
