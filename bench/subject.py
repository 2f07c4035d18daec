"""The stack under test, filled: an account with agents, sessions to read and sessions to talk in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

from libs.client import Client, Key, Signer
from libs.protocol.agents import AgentDefinition
from libs.protocol.secrets import ModelProviderConfig
from libs.stack.scripted import MODEL

from .load import Job, Load, run

AGENTS = 5
EVENTS = 20
SKEW_MS = 3_600_000
"""Requests are signed before the measurement, for all of it."""

ENVIRONMENT = {
    "SEED_AGENTS_SESSION_TITLE_GENERATION": "false",
    "SEED_AGENTS_RATE_LIMITS": "off",
    "SEED_AGENTS_SOCKETS_PER_ADDRESS": "5000",
    "SEED_AGENTS_SOCKETS_PER_ACCOUNT": "5000",
    "SEED_AGENTS_CLOCK_SKEW_MS": str(SKEW_MS),
}
_SIGNED_READS = 64
_TURNS_A_SESSION = 10
_PROMPT = "You are the agent of a benchmark. Answer in one sentence."


class InstantProvider:
    """A model that answers at once, or after `wait_s` seconds give or take a spread, in a process of its own."""

    def __init__(self, wait_s: float = 0.0, spread_s: float = 0.0) -> None:
        command = [sys.executable, "-m", "bench.instant", str(wait_s), str(spread_s)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError("the instant provider did not start")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Subject:
    """One account on the stack at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.signer = Signer(Key.generate())
        self.client = Client(url, self.signer)
        self.agents: list[str] = []
        self.read_session = ""

    async def fill(self, provider_url: str) -> None:
        """Provider, agents, and a session with `EVENTS` events."""
        await self.add_provider("instant", provider_url)
        for number in range(AGENTS):
            self.agents.append(await self.add_agent(f"Agent {number}", "instant"))
        self.read_session = await self.client.create_session(self.agents[0], "Read me")
        for number in range(EVENTS // 2):
            await self.client.message(self.read_session, f"Question number {number}")

    async def add_provider(self, name: str, url: str) -> None:
        """A scripted provider with a key."""
        await self.client.set_secret(f"{name}-key", b"sk-bench")
        config = ModelProviderConfig(type="custom", base_url=url, secret_refs={"apiKey": f"{name}-key"})
        await self.client.set_provider(name, config)

    async def add_agent(self, name: str, provider: str) -> str:
        """An agent of that provider."""
        definition = AgentDefinition(name=name, system_prompt=_PROMPT, model_provider=provider, model=MODEL)
        return await self.client.create_agent(definition)

    async def sessions(self, count: int) -> list[str]:
        """Fresh sessions of the first agent."""
        return [await self.client.create_session(self.agents[0]) for _ in range(count)]

    def sign(self, action: Mapping[str, Any]) -> bytes:
        """The envelope of an action, now."""
        return self.signer.sign(action, self.signer.key.principal)

    def message(self, session: str, text: str) -> bytes:
        """The envelope of a MessageSession, now."""
        return self.sign({"_": "MessageSession", "sessionId": session, "content": [{"type": "text", "text": text}]})

    def reads(self, action: Mapping[str, Any], clients: int, seconds: float) -> Load:
        """The same read, signed anew 64 times, from that many clients."""
        bodies = [self.sign(action) for _ in range(_SIGNED_READS)]
        return run(Job(self.url, [bodies] * clients, seconds, repeat=True))

    async def messages(self, clients: int, seconds: float, most_a_second: float) -> Job:
        """MessageSession from that many clients, each in sessions of its own, of ten turns each; made, not yet sent."""
        each = int((seconds + 1) * most_a_second / clients / _TURNS_A_SESSION) + 1
        sessions = await self.sessions(clients * each)

        def message(number: int) -> bytes:
            return self.message(sessions[number // _TURNS_A_SESSION], f"Message {number}")

        count = each * _TURNS_A_SESSION
        bodies: Sequence[Sequence[bytes]] = await asyncio.to_thread(
            lambda: [[message(client * count + number) for number in range(count)] for client in range(clients)]
        )
        return Job(self.url, bodies, seconds, repeat=False)
