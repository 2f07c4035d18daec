"""The model gateway pointed at a scripted provider: fixtures' makers and one configuration a wire format."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.egress import EgressPolicy
from services.runs.providers import Message, ModelConfig, ModelGateway, TextPart, ToolSpec, UserMessage
from tests.support.providers import ProviderServer, collect

HELLO = [UserMessage([TextPart("hi")])]
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"address": {"type": "string"}}})
CONFIGS = {
    "chat": ModelConfig("p", "openrouter", "some-model", api_key="sk-secret"),
    "responses": ModelConfig("p", "openai", "gpt-5.2", api_key="sk-secret", reasoning_level="high"),
    "messages": ModelConfig("p", "anthropic", "claude-sonnet-4-0", api_key="sk-secret"),
    "google": ModelConfig("p", "google", "gemini-2.5-flash", api_key="sk-secret"),
}
FORMATS = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def urls_of(server: ProviderServer) -> dict[str, str]:
    """The vendors' URLs, all on one scripted server."""
    return {
        "openai": f"{server.root}/v1",
        "openrouter": f"{server.root}/v1/",
        "anthropic": server.root,
        "google": f"{server.root}/v1beta",
    }


@asynccontextmanager
async def gateway_to(
    server: ProviderServer, waits: list[float] | None = None, policy: EgressPolicy | None = None
) -> AsyncIterator[ModelGateway]:
    """A gateway whose vendors are the server; it notes in `waits` how long it would wait between attempts."""

    async def no_wait(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)
        await asyncio.sleep(0)

    gateway = ModelGateway(vendor_urls=urls_of(server), sleep=no_wait, policy=policy)
    try:
        yield gateway
    finally:
        await gateway.aclose()


async def ask(
    gateway: ModelGateway,
    config: ModelConfig,
    messages: Sequence[Message] = HELLO,
    tools: Sequence[ToolSpec] = (),
    system: str = "Be brief.",
) -> list[Any]:
    """All events of one reply."""
    async with gateway.stream(config, system, messages, tools) as reply:
        return await collect(reply)
