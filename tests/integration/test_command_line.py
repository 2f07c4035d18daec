"""`seed-agents keys | call | watch | chat | demo` as a person runs them, against the running stack."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.client import Client, load_key
from libs.stack.scripted import Say
from tests.support.kit import Owner, World, until

RUN = (sys.executable, "-c", "import sys; from libs.stack.cli import main; sys.exit(main(sys.argv[1:]))")


class Shell:
    """Runs commands with a key file and a URL of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.key_file = folder / "key.json"
        self.environment = {
            **os.environ,
            "SEED_AGENTS_KEY_FILE": str(self.key_file),
            "SEED_AGENTS_URL": url,
            "COLUMNS": "200",
            "NO_COLOR": "1",
        }

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *RUN, *arguments, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int | None, str, str]:
        process = await self.start(*arguments)
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        return process.returncode, out.decode(), err.decode()

    async def answer(self, *arguments: str) -> dict:
        code, out, err = await self.run("call", *arguments)
        assert (code, err) == (0, "")
        return json.loads(out)


@pytest.fixture
async def shell(tmp_path: Path, world: World) -> AsyncIterator[Shell]:
    shell = Shell(tmp_path, world.urls[0])
    code, out, _ = await shell.run("keys", "new")
    assert (code, load_key(shell.key_file).id in out) == (0, True)
    yield shell


async def owner_of(shell: Shell, world: World, reply: object = "Hello from the model.") -> Owner:
    """The shell's account with a provider and an agent called Guide."""
    owner = Owner(world, world.client(key=load_key(shell.key_file)), await world.provider(reply))  # pyright: ignore[reportArgumentType]
    await world.use(owner.client, owner.provider)
    owner.agent = await owner.client.create_agent(owner.definition(name="Guide"))
    return owner


async def test_keys(shell: Shell) -> None:
    account = load_key(shell.key_file).id
    code, out, _ = await shell.run("keys", "show")
    assert (code, account in out) == (0, True)
    code, out, err = await shell.run("keys", "new")
    assert (code, out) == (1, "")
    assert "already" in err
    assert load_key(shell.key_file).id == account


async def test_call_prints_answers_and_says_what_was_refused(shell: Shell) -> None:
    assert await shell.answer("ListAgents") == {"_": "ListAgentsResponse", "agents": []}
    secret = '{"name": "k", "value": {"/": {"bytes": "c2VjcmV0"}}}'
    assert (await shell.answer("SetSecret", secret))["secret"]["name"] == "k"
    assert await shell.run("call", "GetAgent", '{"agentId": "x"}') == (1, "", "GetAgent: 404 Agent not found\n")
    code, _, err = await shell.run("call", "ListAgent")
    assert (code, "Did you mean ListAgents?" in err) == (1, True)
    for fields in ("{", "[]"):
        code, _, err = await shell.run("call", "ListAgents", fields)
        assert (code, "fields" in err) == (1, True)


async def test_nobody_home(shell: Shell, unused_port: int) -> None:
    shell.environment["SEED_AGENTS_URL"] = f"http://127.0.0.1:{unused_port}"
    code, _, err = await shell.run("call", "ListAgents")
    assert (code, "Is the server running?" in err) == (1, True)


async def test_chat_streams_several_turns_and_can_be_gone_on_with(shell: Shell, world: World) -> None:
    owner = await owner_of(shell, world)
    owner.provider.script.extend([Say(("One ", "by ", "one."), delay_s=0.02), "And two."])
    code, out, err = await shell.run("chat", "Guide", stdin="first\nsecond\n")
    assert (code, err) == (0, "")
    assert "One by one.\n" in out
    assert "And two.\n" in out
    [session] = (await owner.client.call("ListSessions")).sessions
    assert f"seed-agents chat {owner.agent} --session {session.id}" in out
    code, out, _ = await shell.run("chat", owner.agent, "--session", session.id, stdin="third")
    assert (code, "Hello from the model.\n" in out, "One by one." in out) == (0, True, False)
    assert [content for _, content in await owner.said(session.id)][::2] == ["first", "second", "third"]


async def test_ctrl_c_stops_the_turn_and_the_conversation_goes_on(shell: Shell, world: World) -> None:
    owner = await owner_of(shell, world)
    owner.provider.script.append(Say(("Begun", " never ended"), gate=asyncio.Event()))
    process = await shell.start("chat", "Guide")
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"go\n")
    shown = ""
    async with asyncio.timeout(60):
        while "Begun" not in shown:
            shown += (await process.stdout.read(4096)).decode()
        process.send_signal(signal.SIGINT)
        [session] = (await owner.client.call("ListSessions")).sessions
        await until(lambda: _stopped(owner.client, session.id), what="the stopped turn")
        process.stdin.write(b"next\n")
        process.stdin.write_eof()
        out, _ = await process.communicate()
    assert process.returncode == 0
    assert "Hello from the model." in out.decode()
    assert (await owner.said(session.id))[:2] == [("user", "go"), ("assistant", "Begun")]


async def _stopped(client: Client, session: str) -> bool:
    return [run.status for run in (await client.call("ListRuns", sessionId=session)).runs] == ["canceled"]


async def test_a_failed_turn_is_told_and_the_conversation_goes_on(shell: Shell, world: World) -> None:
    owner = await owner_of(shell, world)
    await owner.client.call("DeleteModelProvider", name="scripted")
    code, out, _ = await shell.run("chat", "Guide", stdin="hello\n")
    assert (code, "! Model provider not found" in out) == (0, True)


async def test_watch_prints_events_as_they_come(shell: Shell, world: World) -> None:
    owner = await owner_of(shell, world)
    session = await owner.session()
    process = await shell.start("watch", f"sessions/{session}", "--json")
    assert process.stdout is not None
    events: list[dict] = []
    async with asyncio.timeout(60):
        while not events or events[-1]["_"] != "change":
            events.append(json.loads(await process.stdout.readline()))
        await owner.client.message(session, "hi")
        while sum(event["_"] == "append" for event in events) < 2:
            events.append(json.loads(await process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        await process.wait()
    assert process.returncode == 130
    assert events[0]["_"] == "subscribed"
    assert [e["event"]["event"]["content"] for e in events if e["_"] == "append"] == ["hi", "Hello from the model."]
    code, _, err = await shell.run("watch", "sessions/none")
    assert (code, err) == (1, "404 Session not found\n")


async def test_the_demo_finishes_on_a_running_server(shell: Shell) -> None:
    code, out, err = await shell.run("demo")
    assert (code, err) == (0, ""), out + err
    assert "Everything was as documented" in out


async def test_the_example_of_the_documentation_runs(shell: Shell, world: World) -> None:
    await owner_of(shell, world)
    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env=shell.environment, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert (process.returncode, out.decode()) == (0, "Hello from the model.\n404: Run not found\n")
