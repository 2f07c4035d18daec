"""Conversations and events in a terminal; readable without colour."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from typing import Any

import msgspec
from rich.console import Console

from libs.protocol import Response, WsEvent, ws_json
from libs.protocol.actions import ListAgents
from libs.protocol.agents import AgentInfo
from libs.protocol.ws import (
    WsAccountChange,
    WsAgentChange,
    WsRunAppend,
    WsRunChange,
    WsRunPartial,
    WsSessionAppend,
    WsSessionChange,
    WsSessionPartial,
    WsSubscribed,
)

from .client import Client
from .conversation import Changed, Conversation, Logged, Text
from .errors import ApiError, ClientError

_SHOWN_CHARACTERS = 200


class Chat:
    """Several turns with one agent."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._out = Console(highlight=False, soft_wrap=True)
        self._column = 0
        self._title: str | None = None

    async def run(self, agent: str, session_id: str | None) -> None:
        """Read lines from standard input until it ends. `agent` is an id or the name of one agent."""
        found = await self._find(agent)
        session_id = session_id or await self._client.create_session(found.id)
        self._note(f"{found.definition.name} ({found.definition.model}), session {session_id}")
        self._note("Ctrl-C stops a turn, Ctrl-D ends the conversation.")
        lines = Lines()
        async with Conversation(self._client, session_id, await self._last_seq(session_id)) as conversation:
            while True:
                self._prompt()
                line = await lines.read()
                if line is None:
                    break
                if line.strip():
                    await self._turn(conversation, line)
        self._note(f"\nGo on later: seed-agents chat {found.id} --session {session_id}")

    async def _find(self, agent: str) -> AgentInfo:
        answer: Any = await self._client.call(ListAgents())
        assert isinstance(answer, Response)
        agents: list[AgentInfo] = answer.agents  # pyright: ignore[reportAttributeAccessIssue]
        if by_id := [a for a in agents if a.id == agent]:
            return by_id[0]
        named = [a for a in agents if a.definition.name == agent]
        if len(named) == 1:
            return named[0]
        if named:
            raise ClientError(f"Several agents are called {agent}: {', '.join(a.id for a in named)}")
        # An agent that is only publicly readable is in no list.
        return (await self._client.call("GetAgent", agentId=agent)).agent

    async def _last_seq(self, session_id: str) -> int:
        events = (await self._client.session(session_id)).events
        return events[-1].seq if events else 0

    async def _turn(self, conversation: Conversation, line: str) -> None:
        stopping: set[asyncio.Task[bool]] = set()

        def stop() -> None:
            if stopping:
                raise KeyboardInterrupt
            stopping.add(asyncio.create_task(conversation.stop()))

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, stop)
        streamed = ""
        try:
            async for happening in conversation.turn(line):
                if isinstance(happening, Text):
                    streamed += happening.text
                    self._write(happening.text)
                elif isinstance(happening, Changed):
                    self._show_title(happening)
                elif self._show(happening, streamed):
                    streamed = ""
        except ApiError as e:
            self._note(f"! {e.message}")
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            if stopping:
                with contextlib.suppress(ClientError):
                    await asyncio.gather(*stopping)

    def _show(self, logged: Logged, streamed: str) -> bool:
        """Print a durable event; was it the message whose text has been streaming?"""
        payload = logged.payload
        kind = payload.get("type")
        if kind == "message" and payload.get("role") == "assistant":
            content = payload.get("content", "")
            if content.strip() != streamed.strip():
                self._fresh_line()
                self._write(content)
            self._fresh_line()
            return True
        if kind == "tool_call":
            self._note(f"· {payload.get('name')} {_short(payload.get('input'))}")
        elif kind == "tool_result" and payload.get("error"):
            self._note(f"· {payload.get('name')} failed: {_short(payload['error'])}")
        return False

    def _show_title(self, changed: Changed) -> None:
        title = changed.session.title
        if isinstance(title, str) and title != self._title:
            self._title = title
            self._note(f"· title: {title}")

    def _prompt(self) -> None:
        self._fresh_line()
        if sys.stdin.isatty():
            self._out.print("[bold]you>[/bold] ", end="")

    def _write(self, text: str) -> None:
        self._out.print(text, end="", markup=False)
        if text:
            self._column = 0 if text.endswith("\n") else 1

    def _note(self, text: str) -> None:
        self._fresh_line()
        self._out.print(text, style="dim", markup=False)

    def _fresh_line(self) -> None:
        if self._column:
            self._out.print()
            self._column = 0


class Lines:
    """Lines of standard input, read beside the event loop.

    A thread of its own reads the descriptor itself: a thread blocked inside `sys.stdin` would hold a lock that the
    interpreter needs in order to end.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._feed, args=(sys.stdin.fileno(),), daemon=True).start()

    async def read(self) -> str | None:
        """The next line without its end; None at the end of input."""
        return await self._queue.get()

    def _feed(self, descriptor: int) -> None:
        rest = b""
        while data := os.read(descriptor, 65_536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._put(line.decode("utf-8", "replace").rstrip("\r"))
        if rest:
            self._put(rest.decode("utf-8", "replace"))
        self._put(None)

    def _put(self, line: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)


async def watch(client: Client, key: str, after_seq: int | None, as_json: bool) -> None:
    """Print the events of a key, one a line, until the subscription ends or this is cancelled."""
    out = Console(highlight=False, soft_wrap=True)
    async with client.subscribe(key, after_seq) as events:
        async for event in events:
            if as_json:
                sys.stdout.write(ws_json(event).decode() + "\n")
                sys.stdout.flush()
            else:
                out.print(f"{time.strftime('%H:%M:%S')}  {describe(event)}", markup=False)


def describe(event: WsEvent) -> str:
    """One line about an event."""
    match event:
        case WsSubscribed():
            return f"subscribed  {event.key} as {event.account_id}"
        case WsSessionAppend():
            return f"append {event.event.seq:>4}  {_payload(msgspec.json.decode(event.event.event))}"
        case WsSessionPartial() | WsRunPartial():
            return f"partial      {_short(msgspec.to_builtins(event.patch))}"
        case WsSessionChange():
            title = event.value.title if isinstance(event.value.title, str) else "(untitled)"
            return f"session      {event.value.status}: {title}"
        case WsAgentChange():
            return f"agent        {event.value.status}: {event.value.definition.name}"
        case WsAccountChange():
            return f"hint         {_short(msgspec.to_builtins(event.value))}"
        case WsRunChange():
            return f"run          {event.value.status}: {event.value.title} ({event.value.id})"
        case WsRunAppend():
            return f"journal {event.seq:>3}  {_short(msgspec.json.decode(event.entry))}"
        case _:
            return _short(msgspec.to_builtins(event))


def _payload(payload: dict[str, Any]) -> str:
    match payload.get("type"):
        case "message":
            return f"{payload.get('role')}: {_short(payload.get('content'))}"
        case "tool_call":
            return f"tool_call {payload.get('name')} {_short(payload.get('input'))}"
        case "tool_result":
            return f"tool_result {payload.get('name')} {_short(payload.get('error') or payload.get('output'))}"
        case "error":
            return f"error: {_short(payload.get('message'))}"
        case kind:
            return f"{kind} {_short(payload)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
