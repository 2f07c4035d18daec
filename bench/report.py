"""results.json, and the table between the marks of README.md."""

from __future__ import annotations

import json
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
        *_live(results["live"]),
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
