"""`seed-agents demo`: the whole main job against a scripted model provider, every step checked as it is shown."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from libs.client import Client, ClientError, Key
from libs.client.conversation import Changed, Conversation, Logged, Text
from libs.client.server import running_url
from libs.protocol.agents import AgentDefinition
from libs.protocol.responses import GetSessionResponse
from libs.protocol.secrets import ModelProviderConfig

from .errors import StackError
from .scripted import MODEL, Calls, Say, ScriptedProvider
from .stack import Stack

_API_KEY = b"sk-demo"
_QUESTION = "How do you know that this question is mine?"
_ANSWER = (
    "Your client signed it. Every request is a DAG-CBOR envelope with an Ed25519 signature over all of it, so the "
    "server needs no login: the signature is the authorization. And your message was in the log before I was asked, so "
    "you need not say it twice."
)
_STEPS = ("Read the question", "Answer it")
_TOKEN_S = 0.02
_TIMEOUT_S = 60.0


class Surprise(Exception):
    """Something is not as documented."""


async def demo(url: str | None, out: Console) -> int:
    """Run the demo on the server at `url`, else on the one of the data directory, else on one of its own.

    Returns the exit code: 0 when everything was as documented.
    """
    started = time.monotonic()
    try:
        async with asyncio.timeout(_TIMEOUT_S), AsyncExitStack() as stack:
            address = url or running_url()
            if address is None:
                address = await stack.enter_async_context(_own_stack(out))
            await _run(address, out, stack)
            out.print(f"\nEverything was as documented, in {time.monotonic() - started:.1f} s.", style="green")
            out.print("A server of your own: seed-agents up · then: seed-agents chat --help", style="dim")
    except Surprise as e:
        return _failed(out, f"Not as documented: {e}")
    except TimeoutError:
        return _failed(out, f"Not done after {_TIMEOUT_S:.0f} s")
    except (ClientError, StackError, OSError) as e:
        return _failed(out, f"{type(e).__name__}: {e}")
    return 0


def _failed(out: Console, text: str) -> int:
    out.print(f"\n{text}", style="bold red", markup=False)
    return 1


@asynccontextmanager
async def _own_stack(out: Console) -> AsyncIterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="seed-agents-demo-"))
    try:
        out.print("No server runs here: starting one for the demo, stores and all …", style="dim")
        started = time.monotonic()
        async with Stack(folder, 0) as stack:
            _step(out, "server", f"{stack.url} (its own, started in {time.monotonic() - started:.1f} s)")
            yield stack.url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _run(url: str, out: Console, stack: AsyncExitStack) -> None:
    words = [word + " " for word in _ANSWER.split(" ")]
    plan = Calls([("plan", {"steps": [{"id": step, "label": step, "status": "done"} for step in _STEPS]})])
    answer = Say([*words[:-1], words[-1].rstrip()], delay_s=_TOKEN_S, input_tokens=42, output_tokens=len(words))
    provider = await stack.enter_async_context(ScriptedProvider(script=[plan, answer], aside="How it works"))
    _step(out, "model provider", f"{provider.url} (scripted, speaks OpenAI's chat completions)")

    client = await stack.enter_async_context(Client(url, Key.generate()))
    _step(out, "key", f"account {client.account}")
    await client.set_secret("demo-key", _API_KEY)
    _step(out, "SetSecret", "demo-key, encrypted before it is stored")
    config = ModelProviderConfig(type="custom", base_url=provider.url, secret_refs={"apiKey": "demo-key"})
    await client.set_provider("demo", config)
    _step(out, "SetModelProvider", "demo")
    agent_id = await client.create_agent(
        AgentDefinition(name="Guide", system_prompt="You explain this server.", model_provider="demo", model=MODEL)
    )
    _step(out, "CreateAgent", agent_id)
    session_id = await client.create_session(agent_id, "How it works")
    _step(out, "CreateSession", session_id)
    conversation = await stack.enter_async_context(Conversation(client, session_id))
    _step(out, "Subscribe", f"sessions/{session_id}")
    _step(out, "MessageSession", _QUESTION)
    logged = await _watch_turn(conversation, out)
    _check("the provider was called twice", len(_completions(provider)) == 2, len(_completions(provider)))
    key = provider.headers[0].get("authorization")
    _check("the provider got the secret", key == f"Bearer {_API_KEY.decode()}", "another key")

    answered = await client.session(session_id)
    _show_log(answered, out)
    _check_log(answered, logged)


async def _watch_turn(conversation: Conversation, out: Console) -> list[Logged]:
    streamed: list[str] = []
    logged: list[Logged] = []
    planned = False
    async for happening in conversation.turn(_QUESTION):
        if isinstance(happening, Text):
            if not streamed:
                out.print()
            streamed.append(happening.text)
            out.print(happening.text, end="", markup=False, highlight=False, soft_wrap=True)
        elif isinstance(happening, Logged):
            logged.append(happening)
        elif isinstance(happening, Changed) and happening.session.plan and not planned:
            planned = True
            _step(out, "plan", " · ".join(_STEPS))
    out.print()
    _check("the plan was shown", planned, "no plan")
    _check("the text streamed", "".join(streamed) == _ANSWER, "".join(streamed))
    _check("it came in pieces", len(streamed) > 1, len(streamed))
    return logged


def _check_log(answered: GetSessionResponse, logged: list[Logged]) -> None:
    payloads = [event.event for event in answered.events]
    said = [(p.get("type"), p.get("role"), p.get("content")) for p in payloads]
    _check("the log", said == [("message", "user", _QUESTION), ("message", "assistant", _ANSWER)], said)
    _check("seq counts from 1", [event.seq for event in answered.events] == [1, 2], said)
    same = [(event.id, event.seq) for event in answered.events] == [(x.id, x.seq) for x in logged]
    _check("subscribed and stored events are the same", same, [x.id for x in logged])
    _check("the session is idle again", answered.session.status == "idle", answered.session.status)


def _show_log(answered: GetSessionResponse, out: Console) -> None:
    table = Table(title="GetSession: what is in the log", title_justify="left", title_style="bold")
    table.add_column("seq", justify="right")
    table.add_column("role")
    table.add_column("content")
    table.add_column("model")
    table.add_column("tokens", justify="right")
    for event in answered.events:
        meta: dict[str, Any] = event.event.get("meta") or {}
        usage = meta.get("usage") or {}
        table.add_row(
            str(event.seq),
            event.event.get("role", event.event.get("type", "")),
            event.event.get("content", ""),
            meta.get("model", ""),
            str(usage.get("total", "")),
        )
    out.print()
    out.print(table)


def _completions(provider: ScriptedProvider) -> list[dict[str, Any]]:
    # A title may be asked for beside the turn; such a request offers no tools.
    return [request for request in provider.requests if request.get("tools")]


def _step(out: Console, name: str, text: str) -> None:
    out.print(f"[bold]{name:<18}[/bold]", end="", highlight=False)
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _check(what: str, holds: bool, found: Any) -> None:
    if not holds:
        raise Surprise(f"{what}; found {found!r}")
