"""What the processes hold, how long a start takes, and what checking an envelope costs."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nacl.bindings
import psutil

from libs.stack import ManagedProcess
from libs.wire import Key, sign_envelope, verify_envelope

from .processor import STORES

_ROUNDS = 7
_CALLS = 2_000


def memory(processes: Iterable[ManagedProcess]) -> dict[str, Any]:
    """MB by process, children included: `pss` (shared pages divided among those who share them) and `rss`."""
    by_name: dict[str, dict[str, float]] = {}
    for process in processes:
        if process.pid is None:
            continue
        family = [psutil.Process(process.pid)]
        family += family[0].children(recursive=True)
        pss = sum(_rollup(member.pid, "Pss") for member in family)
        rss = sum(_rollup(member.pid, "Rss") for member in family)
        by_name[process.name] = {"pss": pss, "rss": rss}
    services = [sizes for name, sizes in by_name.items() if name not in STORES]
    stores = [sizes for name, sizes in by_name.items() if name in STORES]
    return {
        "by_process": by_name,
        "services": {kind: sum(sizes[kind] for sizes in services) for kind in ("pss", "rss")},
        "stores": {kind: sum(sizes[kind] for sizes in stores) for kind in ("pss", "rss")},
    }


def _rollup(pid: int, name: str) -> float:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    except OSError:
        return 0.0
    return 0.0


def start_up(data_dir: Path, environment: dict[str, str]) -> float:
    """Seconds from `seed-agents up` on an initialised data directory to its first answer; it is stopped again."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", "from libs.stack.cli import main; main(['up', '--port', '0'])"],
        env={**os.environ, **environment, "SEED_AGENTS_DATA_DIR": str(data_dir)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while True:
            if process.poll() is not None or time.monotonic() - started > 120:
                assert process.stderr is not None
                raise RuntimeError(f"up did not come up:\n{process.stderr.read()}")
            if _answers(data_dir):
                return time.monotonic() - started
            time.sleep(0.01)
    finally:
        # Not SIGINT: a bench that was started in the background has it ignored, and so have its children.
        process.terminate()
        process.wait(60)


def _answers(data_dir: Path) -> bool:
    try:
        record = json.loads((data_dir / "stack.json").read_text())
        with urllib.request.urlopen(f"{record['url']}/api/health", timeout=1) as answer:
            return record["ready"] and answer.status == 200
    except (OSError, ValueError, KeyError):
        return False


def verification() -> dict[str, float]:
    """µs to verify a small envelope, and for the bare Ed25519 check of the same message; best of several rounds."""
    key = Key.generate()
    body = sign_envelope(key, {"_": "GetSession", "sessionId": "7a1b2c3d-4e5f-4601-8234-56789abcdef0"})
    now = time.time() * 1000
    message = bytes(len(body))
    signed = key.sign(message) + message

    # By turns, so that a disturbance does not hit only one of the two.
    whole, bare = _best_by_turns(
        lambda: verify_envelope(body, now_ms=now), lambda: nacl.bindings.crypto_sign_open(signed, key.public_key)
    )
    return {"envelope_us": whole, "ed25519_us": bare, "ratio": whole / bare, "bytes": len(body)}


def _best_by_turns(*works: Callable[[], object]) -> list[float]:
    best = [math.inf] * len(works)
    for _ in range(_ROUNDS):
        for n, work in enumerate(works):
            started = time.perf_counter()
            for _ in range(_CALLS):
                work()
            best[n] = min(best[n], (time.perf_counter() - started) / _CALLS * 1e6)
    return best
