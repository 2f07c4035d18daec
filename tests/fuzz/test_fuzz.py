"""50,000 mutated envelopes: most of them to the edge's verification, 5,000 over HTTP to two edges, replays included.

`make fuzz` sends a million over HTTP.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from libs.client import Client, Key
from libs.stack import Stack
from tests.fuzz.connection import Connection
from tests.fuzz.house import ENVIRONMENT, house
from tests.fuzz.in_process import verify_all
from tests.fuzz.mutations import Mutator, Seeds
from tests.fuzz.over_http import message_of

IN_PROCESS = 45_000
MUTATED = 3_000
WRONG_TYPES = 2_000


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The system behind two edges."""
    with Stack(tmp_path_factory.mktemp("fuzz") / "data", edges=2, env=ENVIRONMENT) as stack:
        yield stack


def test_the_edge_takes_what_the_oracle_takes_and_nothing_else() -> None:
    mutator = Mutator(Key(b"\x01" * 32), Seeds({}), seed=20_260_101)
    found = verify_all(itertools.islice(mutator.stream(), IN_PROCESS))
    assert not found.faults
    kinds = {kind for kind, _ in found.seen}
    assert {kind for kind, outcome in found.seen if outcome == "accepted"} >= {"bytes", "form", "good", "parts"}
    assert {kind for kind, outcome in found.seen if outcome != "accepted"} == kinds - {"good", "signed"}


async def test_two_edges_refuse_what_they_must_and_never_fail(edges: Stack) -> None:
    async with house(edges.urls, seed=20_260_102) as h:
        await h.fuzzer.run(itertools.islice(h.mutator.stream(), MUTATED))
        await h.fuzzer.run(itertools.islice(h.mutator.wrong_types(), WRONG_TYPES))
        await h.fuzzer.settle_suspects()
        assert not h.fuzzer.findings.faults
        assert sum(h.fuzzer.findings.seen.values()) == MUTATED + WRONG_TYPES
        assert h.fuzzer.replays > 10
        assert (await h.client.session(h.session)).session.agent_id == h.agent


async def test_an_envelope_acts_once_however_often_it_comes(edges: Stack) -> None:
    """To both edges at the same time, and again afterwards: one effect, and whoever is not told to wait, one answer."""
    async with house(edges.urls, seed=3) as h:
        connections = [Connection(url) for url in h.urls]
        before = await _sessions(h.client, h.agent)
        for _ in range(50):
            body = h.mutator.sign({"_": "CreateSession", "agentId": h.agent})
            at_once = await asyncio.gather(*(connection.ask(body) for connection in connections))
            later = [await connection.ask(body) for connection in connections]
            answered = [reply for reply in (*at_once, *later) if reply.status == 200]
            assert len(answered) >= 3
            assert len({reply.body for reply in answered}) == 1
            for reply in at_once:
                assert reply.status == 200 or message_of(reply) == "This request is still being handled"
        assert await _sessions(h.client, h.agent) == before + 50
        for connection in connections:
            connection.close()


async def _sessions(client: Client, agent: str) -> int:
    return (await client.call("GetAgent", agentId=agent)).session_count
