"""`python -m bench`: measure everything, write results.json and the table in README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc

from libs.stack import Stack

from . import footprint, guard, live, replay, runs
from .floors import Floor, fill, measure
from .load import Job, run
from .report import HERE, write
from .site import SMALL, Amounts
from .subject import AGENTS, ENVIRONMENT, EVENTS, InstantProvider, Subject

CLIENTS = (1, 8, 32, 64)
SUBSCRIBERS = (50, 200, 1000)
SECTIONS = ("reads", "messages", "replay", "live", "runs", "memory", "start", "verify")
_STARTS = 3
_ROUNDS = 3
"""Times that ours and its floor are measured by turns, so that a disturbance does not hit only one of the two."""
_SETTLE_S = 5.0
_MOST_TURNS_A_SECOND = 400.0


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


async def _reads(subject: Subject, floor: Floors, seconds: float) -> dict[str, Any]:
    session = subject.read_session
    actions = {"ListAgents": {"_": "ListAgents"}, "GetSession": {"_": "GetSession", "sessionId": session}}
    results: dict[str, Any] = {"Echo": {}, "grpc": {}, "sql": {name: {} for name in actions}}
    results |= {name: {"ours": {}, "floor": {}} for name in actions}
    body = subject.sign({"_": "ListAgents"})
    for clients in CLIENTS:
        results["Echo"][clients] = floor.load("Echo", [[body]] * clients, seconds)
        results["grpc"][clients] = await asyncio.to_thread(measure, "grpc", floor.service, str(clients), str(seconds))
        for name, action in actions.items():
            sql = ("sql", floor.dsn, name, str(clients), str(seconds))
            results["sql"][name][clients] = await asyncio.to_thread(measure, *sql)
            ours: list[dict[str, Any]] = []
            bare: list[dict[str, Any]] = []
            for _ in range(_ROUNDS):
                bare.append(await asyncio.to_thread(floor.load, name, [[body]] * clients, seconds))
                ours.append(asdict(await asyncio.to_thread(subject.reads, action, clients, seconds)))
            results[name]["ours"][clients], results[name]["floor"][clients] = _best(ours), _best(bare)
            _say(f"{name} from {clients}: {_short(_best(ours))}; floor {_short(_best(bare))}")
    return results


async def _messages(subject: Subject, floor: Floors, seconds: float) -> dict[str, Any]:
    results: dict[str, Any] = {"ours": {}, "floor": {}, "commit": {}}
    for clients in CLIENTS:
        sql = ("sql", floor.dsn, "append", str(clients), str(seconds))
        results["commit"][clients] = await asyncio.to_thread(measure, *sql)
        bodies = [[f"session-{number}".encode()] for number in range(clients)]
        ours: list[dict[str, Any]] = []
        bare: list[dict[str, Any]] = []
        for _ in range(_ROUNDS):
            bare.append(await asyncio.to_thread(floor.load, "Turn", bodies, seconds))
            job = await subject.messages(clients, seconds, _MOST_TURNS_A_SECOND)
            ours.append(asdict(await asyncio.to_thread(run, job)))
        results["ours"][clients], results["floor"][clients] = _best(ours), _best(bare)
        _say(f"MessageSession from {clients}: {_short(_best(ours))}; floor {_short(_best(bare))}")
    return results


def _best(loads: list[dict[str, Any]]) -> dict[str, Any]:
    """The round that was disturbed least; one with a refusal in it counts before all others, so that it shows."""
    return max(loads, key=lambda load: (bool(load["error"]), load["per_second"]))


async def _live(subject: Subject) -> dict[str, Any]:
    results: dict[str, Any] = await live.first_byte(subject)
    for name in ("first_byte_to_frame", "commit_to_frame"):
        _say(f"{name}: p50 {results[name]['p50']:.1f} ms")
    results["fan_out"] = {}
    for count in SUBSCRIBERS:
        results["fan_out"][count] = got = await live.fan_out(subject, count)
        _say(f"fan-out to {count}: p50 {got['each']['p50']:.1f} ms, all within {got['all']['p50']:.1f} ms (median)")
    return results


class Floors:
    """The floor's processes over the stack's own PostgreSQL."""

    def __init__(self, dsn: str, provider_url: str) -> None:
        self.dsn = dsn
        self._service = Floor("service", dsn, provider_url)
        self.service = f"127.0.0.1:{self._service.port}"
        self._edge = Floor("edge", self.service)
        self.url = f"http://127.0.0.1:{self._edge.port}"

    def load(self, method: str, clients: list[list[bytes]], seconds: float) -> dict[str, Any]:
        path = "/" if method == "Echo" else f"/{method}"
        return asdict(run(Job(self.url, clients, seconds, repeat=True, path=path)))

    def stop(self) -> None:
        self._edge.stop()
        self._service.stop()


def _short(load: dict[str, Any]) -> str:
    error = f" ERROR {load['statuses']} {load['error']}" if load["error"] else ""
    return f"{load['per_second']:.0f}/s p50 {load['p50']:.2f} p99 {load['p99']:.1f} ms{error}"


async def _loaded(stack: Stack, only: set[str], seconds: float) -> dict[str, Any]:
    results: dict[str, Any] = {}
    if "memory" in only:
        await asyncio.sleep(_SETTLE_S)
        results["memory_idle"] = footprint.memory(stack.processes())
        _say(f"idle: services {results['memory_idle']['services']}, stores {results['memory_idle']['stores']}")
    if not only & {"reads", "messages", "replay", "live"}:
        return results
    provider = InstantProvider()
    subject = Subject(stack.url)
    try:
        await subject.fill(provider.url)
        await fill(stack.stores.database_url, agents=AGENTS, events=EVENTS, sessions=max(CLIENTS))
        floor = Floors(stack.stores.database_url, provider.url)
        try:
            if "reads" in only:
                results["reads"] = await _reads(subject, floor, seconds)
            if "messages" in only:
                results["messages"] = await _messages(subject, floor, seconds * 2)
        finally:
            floor.stop()
        if "replay" in only:
            results["replay"] = await replay.measure(stack, subject)
            _say(f"replay window: {results['replay']['costs_ms']:.2f} ms")
        if "live" in only:
            results["live"] = await _live(subject)
    finally:
        await subject.client.close()
        provider.stop()
    if "memory" in only:
        results["memory_after"] = footprint.memory(stack.processes())
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one round (turns: twice that)")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to run")
    parser.add_argument("--small", action="store_true", help="the runs section at a fraction of its size")
    parser.add_argument("--no-write", action="store_true", help="print the results, keep the committed ones")
    given = parser.parse_args()
    guard.guarded("seed-agents-bench-", lambda folder: _measure(given, folder))


def _measure(given: argparse.Namespace, folder: Path) -> None:
    only = set(given.only)
    results: dict[str, Any] = {
        "machine": {
            "cpus": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3),
            "system": platform.system(),
            "python": platform.python_version(),
            "grpcio": grpc.__version__,
            "load_before": round(os.getloadavg()[0], 2),
            "date": time.strftime("%Y-%m-%d"),
        }
    }
    if "verify" in only:
        results["verify"] = footprint.verification()
        _say(f"verification: {results['verify']}")
    if only - {"runs", "verify"}:
        with Stack(folder / "data", 0, env=ENVIRONMENT) as stack:
            results["first_start_s"] = stack.timings
            results |= guard.run(_loaded(stack, only, given.seconds))
    if "start" in only:
        results["start_s"] = sorted(footprint.start_up(folder / "data", ENVIRONMENT) for _ in range(_STARTS))
        _say(f"up on an initialised directory: {results['start_s']}")
    if "runs" in only:
        results["runs"] = guard.run(runs.measure(folder, SMALL if given.small else Amounts(), _say))
    if given.no_write or given.small or only != set(SECTIONS):
        print(json.dumps(results, indent=1))
    else:
        write(results)
        _say(f"written: {HERE / 'results.json'}, {HERE / 'README.md'}")


if __name__ == "__main__":
    main()
