"""results.json, and the table between the marks of README.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_BEGIN, _END = "<!-- results: begin -->", "<!-- results: end -->"
_VERIFY_RATIO = 1.3


@dataclass(frozen=True)
class Line:
    """One measured figure. `met` is None where no target is set."""

    what: str
    target: str
    figure: str
    floor: str
    ratio: str
    met: bool | None


def write(results: dict[str, Any]) -> None:
    """Replace results.json and the table in README.md."""
    # JSON has text keys only; read back, figures are found the same way as in a committed file.
    text = json.dumps(results, indent=1)
    (HERE / "results.json").write_text(text + "\n")
    page = (HERE / "README.md").read_text()
    before, rest = page.split(_BEGIN)
    after = rest.split(_END)[1]
    (HERE / "README.md").write_text(f"{before}{_BEGIN}\n{table(json.loads(text))}{_END}{after}")


def table(results: dict[str, Any]) -> str:
    """The results as markdown."""
    machine = results["machine"]
    head = (
        f"{machine['cpus']} cores, {machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}, "
        f"grpcio {machine['grpcio']}, {machine['date']}. Everything on the same cores: the services, the stores, the "
        "load generator and the model provider.\n\n"
        "| what | target | measured | floor | ratio | met |\n|---|---|---|---|---|---|\n"
    )
    marks = {True: "yes", False: "**no**", None: ""}
    rows = [
        f"| {x.what} | {x.target} | {x.figure} | {x.floor} | {x.ratio} | {marks[x.met]} |\n" for x in _lines(results)
    ]
    return head + "".join(rows)


def _lines(results: dict[str, Any]) -> list[Line]:
    return [
        *_reads(results["reads"]),
        *_messages(results["messages"]),
        *_verify(results["verify"]),
        *_replay(results["replay"]),
        *_live(results["live"]),
        *_runs(results["runs"]),
        *_start(results["start_s"]),
        *_memory(results["memory_idle"], results["memory_after"]),
    ]


def _reads(reads: dict[str, Any]) -> list[Line]:
    lines: list[Line] = []
    for name in ("ListAgents", "GetSession"):
        for clients, ours in reads[name]["ours"].items():
            floor = reads[name]["floor"][clients]
            share = ours["per_second"] / floor["per_second"]
            target, met = "", None
            if clients == "1":
                target, met = "p50 ≤ 2.5 ms", ours["p50"] <= 2.5
            elif clients == "32":
                target = "≥ 60 % of the floor, > 1000/s"
                met = share >= 0.6 and ours["per_second"] > 1000
            lines.append(Line(f"{name}, {_clients(clients)}", target, _load(ours), _load(floor), _percent(share), met))
    for clients in ("1", "32"):
        echo, grpc = reads["Echo"][clients], reads["grpc"][clients]
        lines.append(Line(f"bare aiohttp echo, {_clients(clients)}", "", _load(echo), "", "", None))
        lines.append(Line(f"bare grpc.aio hop, {_clients(clients)}", "", _load(grpc), "", "", None))
        for name, sql in reads["sql"].items():
            lines.append(Line(f"bare SQL of {name}, {_clients(clients)}", "", _load(sql[clients]), "", "", None))
    return lines


def _messages(messages: dict[str, Any]) -> list[Line]:
    lines: list[Line] = []
    for clients, ours in messages["ours"].items():
        floor = messages["floor"][clients]
        share = ours["per_second"] / floor["per_second"]
        target, met = "", None
        if clients == "1":
            target, met = "p50 ≤ 20 ms", ours["p50"] <= 20
        elif clients == "32":
            target, met = "≥ 160/s", ours["per_second"] >= 160
        lines.append(
            Line(f"MessageSession, {_clients(clients)}", target, _load(ours), _load(floor), _percent(share), met)
        )
    commit = messages["commit"]["1"]
    lines.append(Line("bare SQL of one append, committed, 1 client", "", _load(commit), "", "", None))
    return lines


def _verify(verify: dict[str, float]) -> list[Line]:
    ratio = verify["ratio"]
    figure, floor = f"{verify['envelope_us']:.0f} µs", f"{verify['ed25519_us']:.0f} µs (bare Ed25519)"
    return [
        Line(
            "verify an envelope",
            f"≤ {_VERIFY_RATIO} × Ed25519",
            figure,
            floor,
            f"{ratio:.2f} ×",
            ratio <= _VERIFY_RATIO,
        )
    ]


def _replay(replay: dict[str, Any]) -> list[Line]:
    cost = replay["costs_ms"]
    figure = (
        f"{cost:.2f} ms p50: {replay['edge_ms']:.2f} at the edge, {replay['owner_ms']:.2f} at the owner; "
        f"UpdateSession p50 {replay['whole']['p50']:.2f} ms"
    )
    floor = f"p50 {replay['off']['p50']:.2f} ms (without it)"
    share = _percent(replay["off"]["p50"] / replay["whole"]["p50"])
    return [Line("replay window, of a mutating action", "≤ 0.4 ms p50", figure, floor, share, cost <= 0.4)]


def _runs(runs: dict[str, Any]) -> list[Line]:
    lines: list[Line] = []
    for name, (what, target, line) in _RUNS.items():
        if "error" in runs[name] and runs[name]["error"]:
            lines.append(Line(what, target, f"failed: {runs[name]['error']}", "", "", False))
        else:
            found = line(what, target, runs[name], runs["lease_s"])
            lines += [Line(title, aim, figure, "", "", met) for title, aim, figure, met in found]
    return lines


_Figures = list[tuple[str, str, str, bool | None]]


def _creations(what: str, target: str, got: dict[str, Any], _: float) -> _Figures:
    return [(what, target, _load(got), None)]


def _completions(what: str, target: str, got: dict[str, Any], _: float) -> _Figures:
    rate, split = got["a_worker_core_second"], got["ms_a_turn"]
    shares = ", ".join(f"{name} {ms:.1f}" for name, ms in sorted(split.items(), key=lambda item: -item[1]))
    return [
        (what, "", _load(got), None),
        ("completions a second a core of worker time", target, f"{rate:.0f}/s", rate >= 150),
        ("processor time of a turn, all processes", "", f"{sum(split.values()):.1f} ms: {shares}", None),
    ]


def _at_once(what: str, target: str, got: dict[str, Any], _: float) -> _Figures:
    own = got["own"]
    figure = (
        f"p50 {got['p50']:.2f}, worst {got['longest']:.2f} s; the run alone p50 {own['p50']:.2f}, "
        f"worst {own['longest']:.2f} s"
    )
    return [(what, target, figure, got["longest"] <= 1.3)]


def _dispatch(what: str, target: str, got: dict[str, Any], _: float) -> _Figures:
    claimed, alone = got["claimed"], got["alone"]
    figure = (
        f"to the model being asked {_delays(got)}; to the claim p50 {claimed['p50']:.0f}, p99 {claimed['p99']:.0f} ms; "
        f"with nobody else p50 {alone['p50']:.1f} ms; {got['count']} runs, {got['queued']} or more queued"
    )
    return [(what, target, figure, got["p99"] <= 250)]


def _parked(what: str, target: str, got: dict[str, Any], _: float) -> _Figures:
    idle = {name: share for name, share in got["idle_percent"].items() if name.split("-")[0] == "worker"}
    share = max(0.0, sum(got["percent"].values()) - sum(got["idle_percent"].values()))
    wake = got["wake"]
    how = f"{got['parked']}, {got['by_the_edge']} of them over the edge, the others copies of their rows"
    cost = (
        f"{got['added_mb']:.0f} MB PSS; {share:.1f} % of a core beyond idle, "
        f"{got['announced_a_second']:.1f} turns a second announced, each every {got['announced_every_s']:.0f} s"
    )
    worst = max(idle.values())
    return [
        ("idle workers", "< 2 % of a core each", ", ".join(f"{share:.1f} %" for share in idle.values()), worst < 2),
        (f"{what} ({how}): added to services and workers", target, cost, got["added_mb"] < 50 and share < 2),
        ("SignalRun to the frame of the running run, among those", "p99 ≤ 100 ms", _delays(wake), wake["p99"] <= 100),
    ]


def _kills(what: str, target: str, got: dict[str, Any], lease: float) -> _Figures:
    figure = f"p50 {got['p50']:.1f}, worst {got['longest']:.1f} s; {got['kills']} kills, {got['count']} turns"
    return [(f"{what}, lease {lease:.0f} s", target, figure, got["longest"] <= lease + 2)]


def _cancels(what: str, target: str, got: dict[str, Any], _: float) -> _Figures:
    figure = (
        f"p50 {got['p50']:.0f}, p99 {got['p99']:.0f} ms; streams to the model closed p50 {got['streams']['p50']:.0f}, "
        f"CancelRun answered p50 {got['call']['p50']:.0f} ms; {got['count']} trees"
    )
    return [(what, target, figure, got["p99"] <= 1000)]


_RUNS: dict[str, tuple[str, str, Callable[[str, str, dict[str, Any], float], _Figures]]] = {
    "creations": ("runs created over the edge, no worker, 32 clients", "", _creations),
    "completions": ("runs completed, instant model, 32 clients", "≥ 150/s", _completions),
    "at_once": ("64 turns that wait 1 s on the model, one worker", "≤ 1.3 s each", _at_once),
    "dispatch": ("first run behind another account's queue", "p99 ≤ 250 ms", _dispatch),
    "parked": ("parked runs", "< 50 MB, < 2 % of a core", _parked),
    "kills": ("`kill -9` of a worker to its turns going on elsewhere", "≤ lease + 2 s", _kills),
    "cancels": ("cancel of a tree of 100 live runs to all stopped", "p99 ≤ 1000 ms", _cancels),
}


def _live(live: dict[str, Any]) -> list[Line]:
    first, commit = live["first_byte_to_frame"], live["commit_to_frame"]
    lines = [
        Line("provider's first byte to frame", "p50 ≤ 10 ms", _delays(first), "", "", first["p50"] <= 10),
        Line("later text to frame", "", _delays(live["later_text_to_frame"]), "", "", None),
        Line("commit to frame, 1 subscriber", "p50 ≤ 5 ms", _delays(commit), "", "", commit["p50"] <= 5),
    ]
    for count, fan_out in live["fan_out"].items():
        every = fan_out["all"]
        target, met = ("all ≤ 150 ms", every["p50"] <= 150) if count == "1000" else ("", None)
        figure = f"all: p50 {every['p50']:.0f}, worst {every['longest']:.0f} ms; each: {_delays(fan_out['each'])}"
        lines.append(Line(f"commit to frame, {count} subscribers", target, figure, "", "", met))
    return lines


def _start(seconds: list[float]) -> list[Line]:
    median = seconds[len(seconds) // 2]
    figure = f"{median:.1f} s ({', '.join(f'{s:.1f}' for s in seconds)})"
    return [Line("`up` on an initialised directory", "≤ 8 s", figure, "", "", median <= 8)]


def _memory(idle: dict[str, Any], after: dict[str, Any]) -> list[Line]:
    def total(kind: str, sizes: dict[str, Any]) -> float:
        return sizes["services"][kind] + sizes["stores"][kind]

    figure = f"{idle['services']['pss']:.0f} MB PSS, {idle['services']['rss']:.0f} MB RSS"
    lines = [Line("all services, idle", "≤ 900 MB", figure, "", "", idle["services"]["rss"] <= 900)]
    figure = f"{total('pss', idle):.0f} MB PSS, {total('rss', idle):.0f} MB RSS"
    lines.append(Line("with the stores, idle", "", figure, "", "", None))
    for name, sizes in idle["by_process"].items():
        later = after["by_process"].get(name, {"pss": 0.0, "rss": 0.0})
        figure = f"{sizes['pss']:.0f} MB PSS, {sizes['rss']:.0f} MB RSS; after the load {later['pss']:.0f} MB PSS"
        lines.append(Line(f"{name}", "", figure, "", "", None))
    return lines


def _clients(count: str) -> str:
    return "1 client" if count == "1" else f"{count} clients"


def _load(load: dict[str, Any]) -> str:
    return f"{load['per_second']:.0f}/s, p50 {load['p50']:.2f}, p95 {load['p95']:.1f}, p99 {load['p99']:.1f} ms"


def _delays(delays: dict[str, float]) -> str:
    return f"p50 {delays['p50']:.1f}, p95 {delays['p95']:.1f}, p99 {delays['p99']:.1f} ms"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
