"""`~/self`: how the agent is set up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from libs.errors import Unavailable
from libs.richtext import blocks_to_markdown
from services.runs.domain.addresses import Form, Reading
from services.runs.verbs.contract import Actor, Output
from services.runs.verbs.memory import Memory
from services.runs.verbs.threads import Threads
from services.runs.verbs.triggers import Triggers

T = TypeVar("T")

_GUIDANCE = (
    "Your files are in ~/memory/ and your tools in ~/tools/: read and write both as you need.\n"
    "What wakes you is in ~/triggers/: what you write there counts at once.\n"
    "Other conversations are at thread: (options query, agentId and limit) and thread:<id>.\n"
    "Name, model, prompt, grants and signing keys are set by people, not by you."
)


class Itself:
    """Tells an agent its own facts."""

    form = Form("~/self", "~/self")

    def __init__(self, memory: Memory, triggers: Triggers, threads: Threads) -> None:
        self._memory, self._triggers, self._threads = memory, triggers, threads

    async def read(self, actor: Actor, rest: str, given: Reading) -> Output:
        """Definition, triggers, memory and conversations."""
        memory, triggers, sessions = await asyncio.gather(
            _known(self._memory.summary(actor)),
            _known(self._triggers.entries(actor)),
            _known(self._threads.count(actor)),
        )
        definition = actor.definition
        prompt = definition.get("systemPrompt", "")
        value: dict[str, Any] = {
            "summary": f'You are "{definition.get("name")}" ({definition.get("model")}).',
            "agentId": actor.agent_id,
            "name": definition.get("name"),
            "model": definition.get("model"),
            "modelProvider": definition.get("modelProvider"),
        }
        value |= {"reasoningLevel": definition["reasoningLevel"]} if definition.get("reasoningLevel") else {}
        value["systemPrompt"] = prompt if isinstance(prompt, str) else blocks_to_markdown(prompt)
        value["grants"] = {"callableTools": sorted(actor.callables), "publish": actor.publishes}
        keys = definition.get("signingKeys") or ([definition["signingKey"]] if definition.get("signingKey") else [])
        value |= {"signingKeys": keys} if keys else {}
        value |= {"metadata": definition["metadata"]} if definition.get("metadata") else {}
        if triggers is not None:
            value["triggers"] = triggers
        if memory is not None:
            value["memory"] = {
                "totalFiles": memory.files,
                "totalBytes": memory.total_bytes,
                "topLevel": [f"{e.path}/ ({e.entry_count} files)" if e.directory else e.path for e in memory.top],
            }
        if sessions is not None:
            value["sessionCount"] = sessions
        return Output(value | {"guidance": _GUIDANCE})


async def _known(part: Awaitable[T]) -> T | None:
    """What a service says; None while it is away, for the rest is worth telling."""
    try:
        return await part
    except Unavailable:
        return None
