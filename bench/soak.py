"""Streams and sockets opened and left without a word: `python -m bench.soak --minutes 10`. Does anything grow?

Round after round, against a whole stack: WebSockets that subscribe and vanish in the middle of a turn, requests whose
sender hangs up, turns stopped while the model streams, gRPC streams that are dropped unread. Memory is taken when every
round's leavings had time to be noticed; the slope over the last three quarters says whether it grows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from libs.stack import ManagedProcess, Stack
from libs.stack.scripted import Say, ScriptedProvider

from . import guard
from .report import HERE
from .subject import ENVIRONMENT, Subject

SOCKETS = 20
STREAMS = 20
REQUESTS = 20
TURNS = 4
_SAMPLE_S = 5.0
_GROWTH_MB_A_MINUTE = 1.0
_PING = {"SEED_AGENTS_PING_INTERVAL_MS": "1000", "SEED_AGENTS_PONG_TIMEOUT_MS": "1000"}


class Soak:
    """One round after another on a filled stack."""

    def __init__(self, subject: Subject, agent: str, addresses: Iterable[str]) -> None:
        self._subject = subject
        self._agent = agent
        self._addresses = list(addresses)
        self.rounds = 0

    async def round(self) -> None:
        """Open everything, leave everything."""
        sessions = [await self._subject.client.create_session(self._agent) for _ in range(TURNS)]
        turns = [asyncio.create_task(self._subject.client.message(session, "go")) for session in sessions]
        await asyncio.gather(
            *(self._socket(sessions[number % TURNS]) for number in range(SOCKETS)),
            *(self._request(sessions[number % TURNS]) for number in range(REQUESTS)),
            *(self._streams(address) for address in self._addresses),
        )
        for session in sessions:
            await self._subject.client.stop(session)
        for turn in turns:
            with contextlib.suppress(Exception):  # a stopped turn ends as it likes
                await turn
        for session in sessions:
            await self._subject.client.call("DeleteSession", sessionId=session)
        self.rounds += 1

    async def _socket(self, session: str) -> None:
        reader, writer = await self._connect()
        writer.write(
            b"GET /agents/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        frame = self._subject.sign({"_": "Subscribe", "key": f"sessions/{session}"})
        writer.write(bytes((0x82, 0xFE)) + len(frame).to_bytes(2, "big") + bytes(4) + frame)
        await reader.readuntil(b"subscribed")
        writer.transport.abort()

    async def _request(self, session: str) -> None:
        _, writer = await self._connect()
        content = [{"type": "text", "text": "gone before the answer"}]
        body = self._subject.sign({"_": "MessageSession", "sessionId": session, "content": content})
        head = f"POST /api/message HTTP/1.1\r\nHost: x\r\nContent-Type: application/cbor\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await writer.drain()
        writer.transport.abort()

    async def _streams(self, address: str) -> None:
        channel = grpc.aio.insecure_channel(address)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for _ in range(STREAMS):
            stream = stub.Watch(health_pb2.HealthCheckRequest())
            await stream.read()
            del stream
        await channel.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        at = urlsplit(self._subject.url)
        return await asyncio.open_connection("127.0.0.1" if at.hostname == "localhost" else at.hostname, at.port)


def sample(processes: Iterable[ManagedProcess]) -> dict[str, float]:
    """MB that belong to each process alone, and to this one."""
    sizes = {p.name: psutil.Process(p.pid).memory_full_info().uss / 1024**2 for p in processes if p.pid is not None}
    return {**sizes, "(this client)": psutil.Process().memory_full_info().uss / 1024**2}


def growth(samples: list[tuple[float, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """First and last MB of each process, and the slope (MB a minute) over the last three quarters."""
    tail = samples[len(samples) // 4 :]
    results: dict[str, dict[str, float]] = {}
    for name in samples[-1][1]:
        points = [(at / 60, sizes[name]) for at, sizes in tail if name in sizes]
        results[name] = {"first": samples[0][1][name], "last": points[-1][1], "mb_a_minute": _slope(points)}
    return results


def _slope(points: list[tuple[float, float]]) -> float:
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


async def soak(stack: Stack, minutes: float) -> dict[str, Any]:
    """Rounds for that many minutes; what grew."""
    processes = [p for p in stack.processes() if p.name not in ("postgres", "nats", "valkey")]
    held = asyncio.Event()
    async with ScriptedProvider(Say(("some text ",) * 3, gate=held, gate_at=2), keep_requests=False) as provider:
        subject = Subject(stack.url)
        await subject.add_provider("held", provider.url)
        agent = await subject.add_agent("Soaked", "held")
        rounds = Soak(subject, agent, stack.addresses.values())
        started = time.monotonic()
        due = 0.0
        samples: list[tuple[float, dict[str, float]]] = []
        while (at := time.monotonic() - started) < minutes * 60:
            await rounds.round()
            if at >= due:
                gc.collect()
                samples.append((at, sample(processes)))
                due = at + _SAMPLE_S
                print(f"{at:5.0f} s  round {rounds.rounds}  {_line(samples[-1][1])}", file=sys.stderr, flush=True)
        await subject.client.close()
    return {
        "grpcio": grpc.__version__,
        "minutes": minutes,
        "rounds": rounds.rounds,
        "each_round": {"sockets": SOCKETS, "requests": REQUESTS, "turns": TURNS, "streams_a_service": STREAMS},
        "memory_mb": growth(samples),
    }


def _line(sizes: dict[str, float]) -> str:
    return "  ".join(f"{name} {size:.1f}" for name, size in sizes.items())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--write", action="store_true", help="replace the committed soak.json")
    given = parser.parse_args()
    guard.guarded("seed-agents-soak-", lambda folder: _measure(given, folder))


def _measure(given: argparse.Namespace, folder: Path) -> None:
    with Stack(folder / "data", 0, env={**ENVIRONMENT, **_PING}) as stack:
        results = guard.run(soak(stack, given.minutes))
    text = json.dumps(results, indent=1)
    print(text)
    if given.write:
        (HERE / "soak.json").write_text(text + os.linesep)
    growing = {name: x for name, x in results["memory_mb"].items() if x["mb_a_minute"] > _GROWTH_MB_A_MINUTE}
    if growing:
        raise SystemExit(f"growing by more than {_GROWTH_MB_A_MINUTE} MB a minute: {', '.join(growing)}")


if __name__ == "__main__":
    main()
