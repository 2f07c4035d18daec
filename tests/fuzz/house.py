"""Two edges, an account with something to name, and a fuzzer pointed at them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from libs.client import Client, Key
from tests.fuzz.mutations import Mutator, Seeds
from tests.fuzz.over_http import Fuzzer
from tests.support.kit import World

ENVIRONMENT = {
    "SEED_AGENTS_SESSION_TITLE_GENERATION": "false",
    "SEED_AGENTS_RATE_LIMITS": "false",
    # Nothing listens there: whatever would be published is not.
    "SEED_AGENTS_HM_SERVER_URL": "http://127.0.0.1:9",
}


@dataclass
class House:
    """What a run needs; `agent` and `session` belong to the client's account, and are still there afterwards."""

    client: Client
    agent: str
    session: str
    mutator: Mutator
    fuzzer: Fuzzer
    urls: list[str]


@asynccontextmanager
async def house(urls: list[str], seed: int) -> AsyncIterator[House]:
    """Edges under a fuzzer, with an account of its own."""
    async with World(urls) as world:
        owner = await world.owner()
        session = await owner.session()
        await owner.client.message(session, "hello")
        (run,) = await owner.runs(session)
        guest = Key.generate().id
        await owner.client.call("InviteAgentCollaborator", agentId=owner.agent, accountId=guest, role="reader")
        known = {
            "agentId": owner.agent,
            "sessionId": session,
            "runId": run.id,
            "provider": "scripted",
            "accountId": guest,
        }
        mutator = Mutator(owner.client.signer.key, Seeds(known), seed)
        fuzzer = Fuzzer(urls, mutator, seed)
        try:
            yield House(owner.client, owner.agent, session, mutator, fuzzer, urls)
        finally:
            fuzzer.close()
