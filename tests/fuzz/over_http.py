"""Envelopes sent to running edges, and what their answers say about them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from libs.protocol import MUTATING
from libs.wire import DecodeError, decode
from tests.fuzz import forms
from tests.fuzz.connection import Connection, Lost, Reply
from tests.fuzz.in_process import PLAIN_BYTES, SKEW_MS, SLOW_S, Findings
from tests.fuzz.mutations import Input, Mutator
from tests.fuzz.oracle import accepts, within_limits

REPLAYED = 0.25
"""Share of the accepted envelopes that change something which are sent again, to the other edge."""
_WAITS_FOR_OTHERS = frozenset({"MessageSession", "RetrySession", "ListProviderModels"})
_IN_FLIGHT = "This request is still being handled"
_TRIES = 5
SUSPECTS = 20

_NOT_TAKEN = frozenset(
    {
        (400, "Invalid CBOR request"),
        (401, "Invalid envelope"),
        (401, "Invalid envelope type"),
        (401, "Invalid signer"),
        (401, "Invalid account"),
        (401, "Invalid signature bytes"),
        (401, "Invalid action"),
        (401, "Invalid action timestamp"),
        (401, "Action timestamp is outside allowed window"),
        (401, "Invalid signature"),
    }
)
"""The answers to an envelope that is not taken as signed by whom it says."""


class Fuzzer:
    """Sends inputs over `connections` to each edge, `depth` at once on each. All is well: `findings.faults` is empty.

    What takes long is measured again at the end, alone and several times: the shortest counts, since only a slow input
    is slow every time.
    """

    def __init__(
        self, urls: Sequence[str], mutator: Mutator, seed: int, *, connections: int = 6, depth: int = 3
    ) -> None:
        self.findings = Findings()
        self._mutator = mutator
        self.replays = 0
        self._urls = list(urls)
        self._edges = [[Connection(url) for _ in range(connections)] for url in urls]
        self._again = [Connection(url) for url in urls]
        self._others: list[Connection] = []
        self._dice = random.Random(seed)
        self._depth = depth
        self.suspects: list[tuple[float, Input]] = []

    async def run(self, inputs: Iterable[Input]) -> None:
        """Send all of them."""
        shared = iter(inputs)
        async with asyncio.TaskGroup() as group:
            for at, edge in enumerate(self._edges):
                for connection in edge:
                    other = Connection(self._urls[(at + 1) % len(self._urls)])
                    self._others.append(other)
                    for _ in range(self._depth):
                        group.create_task(self._work(shared, connection, other))

    async def _work(self, inputs: Iterator[Input], connection: Connection, other: Connection) -> None:
        for given in inputs:
            await self._send(given, connection, other)

    async def _send(self, given: Input, connection: Connection, other: Connection) -> None:
        try:
            reply = await connection.ask(given.body)
        except (Lost, TimeoutError) as e:
            self.findings.fault(f"no answer ({type(e).__name__})", given)
            return
        self._judge(given, reply)
        if reply.status == 200 and given.action in MUTATING and self._dice.random() < REPLAYED:
            await self._replay(given, reply, other)

    def _judge(self, given: Input, reply: Reply) -> None:
        message = message_of(reply)
        taken = (reply.status, message) not in _NOT_TAKEN
        self.findings.seen[given.kind, f"{reply.status}{'' if taken else ' not taken'}"] += 1
        if reply.status in (500, 503) or reply.status < 200:
            self.findings.fault(f"{reply.status} {message}", given)
        now_ms = time.time() * 1000
        if taken and reply.status not in (413, 426) and not accepts(given.body, now_ms, SKEW_MS):
            self.findings.fault(f"taken ({reply.status} {message}), and the oracle refuses", given)
        small = len(given.body) <= PLAIN_BYTES
        if not taken and small and accepts(given.body, now_ms, SKEW_MS) and within_limits(given.body):
            self.findings.fault(f"refused ({message}), and the oracle accepts", given)
        if reply.seconds > SLOW_S and given.action not in _WAITS_FOR_OTHERS:
            self.suspects = sorted([*self.suspects, (reply.seconds, given)], key=lambda s: -s[0])[:SUSPECTS]

    async def _replay(self, given: Input, first: Reply, other: Connection) -> None:
        """The same bytes, or the same envelope in another encoding, must get the stored answer."""
        body = given.body
        if self._dice.random() < 0.3:
            body = forms.reordered(decode(body), self._dice)
        self.replays += 1
        again = await other.ask(body)
        # An answer is given before all edges know it.
        for pause in (0.01, 0.05, 0.2, 0.5, 1.0):
            if message_of(again) != _IN_FLIGHT:
                break
            await asyncio.sleep(pause)
            again = await other.ask(body)
        if (again.status, again.body) != (first.status, first.body):
            self.findings.fault(f"replayed: {again.status} {message_of(again)} after {first.status}", given)

    async def settle_suspects(self) -> None:
        """Measure again what took long, with nothing else under way and good requests in between."""
        for _, given in self.suspects:
            await measure_again(given, self._again[0], self._mutator.sign, self.findings)

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in (*self._again, *self._others, *(c for edge in self._edges for c in edge)):
            connection.close()


def message_of(reply: Reply) -> str:
    """The message of a refusal; empty for other answers."""
    if reply.status == 200:
        return ""
    try:
        answer = decode(reply.body)
    except DecodeError:
        return reply.body[:100].decode("utf-8", "replace")
    return str(answer.get("message", "")) if isinstance(answer, dict) else ""


async def measure_again(
    given: Input, connection: Connection, sign: Callable[[Mapping[str, Any]], bytes], findings: Findings
) -> None:
    """Note an input that is slow every time, although nothing else is under way. `sign` signs for its account."""
    tries, good = [], []
    for _ in range(_TRIES):
        body = given.body if given.signed is None else sign(given.signed)
        tries.append((await connection.ask(body)).seconds)
        good.append((await connection.ask(sign({"_": "ListAgents"}))).seconds)
    if min(tries) - min(good) > SLOW_S:
        findings.fault(f"slow ({min(tries) * 1000:.0f} ms, good ones {median(good) * 1000:.0f} ms)", given)
