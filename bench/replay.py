"""What the replay window costs on a mutating action: the same requests by turns to edges with and without it.

The sender is a process of its own, `python -m bench.replay JOB`: one connection an edge, one request at a time, round
and round, so that a disturbance hits all of them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from libs.stack import Stack

from .live import summary
from .subject import Subject
from .windows import KINDS, edges

ROUNDS = 1_500
_WARM_UP = 100
_MOST_S = 120


async def measure(stack: Stack, subject: Subject, rounds: int = ROUNDS) -> dict[str, Any]:
    """ms of an UpdateSession by kind of edge, and what each kind adds to `off`, p50."""
    session = (await subject.sessions(1))[0]

    def rename(kind: str, number: int) -> bytes:
        return subject.sign({"_": "UpdateSession", "sessionId": session, "title": f"{kind} {number}"})

    bodies = {kind: [rename(kind, number) for number in range(rounds + _WARM_UP)] for kind in KINDS}
    with edges(stack) as urls, tempfile.NamedTemporaryFile(suffix=".job") as file:
        file.write(pickle.dumps([(urls[kind], bodies[kind]) for kind in KINDS]))
        file.flush()
        took = await asyncio.to_thread(_sent, file.name)
    whole, unmarked, off = ([row[n] for row in took] for n in range(len(KINDS)))
    figures = {"whole": summary(whole), "unmarked": summary(unmarked), "off": summary(off)}
    return {
        **figures,
        "rounds": rounds,
        "costs_ms": figures["whole"]["p50"] - figures["off"]["p50"],
        "edge_ms": figures["whole"]["p50"] - figures["unmarked"]["p50"],
        "owner_ms": figures["unmarked"]["p50"] - figures["off"]["p50"],
    }


def _sent(job: str) -> list[list[float]]:
    command = [sys.executable, "-m", "bench.replay", job]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_S)
    if done.returncode != 0:
        raise RuntimeError(f"the sender failed:\n{done.stderr}")
    return json.loads(done.stdout)


class _Connection:
    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        assert at.hostname and at.port
        self._socket = socket.create_connection((at.hostname, at.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = (
            f"POST /api/message HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/cbor\r\n"
            "Accept: application/cbor\r\nContent-Length: "
        )

    def send(self, body: bytes) -> float:
        """Send and read the whole answer; ms. Raises RuntimeError for a refusal."""
        request = f"{self._head}{len(body)}\r\n\r\n".encode() + body
        started = time.perf_counter_ns()
        self._socket.sendall(request)
        data = b""
        while (head := data.find(b"\r\n\r\n")) < 0:
            data += self._read()
        length = data.lower().index(b"content-length:", 0, head) + 15
        whole = head + 4 + int(data[length : data.index(b"\r", length)])
        while len(data) < whole:
            data += self._read()
        took = (time.perf_counter_ns() - started) / 1e6
        if data[9:12] != b"200":
            raise RuntimeError(data[-200:].decode("utf-8", "replace"))
        return took

    def _read(self) -> bytes:
        if data := self._socket.recv(65_536):
            return data
        raise RuntimeError("connection lost")


def _main(job: list[tuple[str, list[bytes]]]) -> list[list[float]]:
    connections = [_Connection(url) for url, _ in job]
    count = len(job)
    gc.disable()
    rows: list[list[float]] = []
    for number in range(len(job[0][1])):
        row = [0.0] * count
        # Another one goes first each time.
        for step in range(count):
            at = (number + step) % count
            row[at] = connections[at].send(job[at][1][number])
        rows.append(row)
    return rows[_WARM_UP:]


if __name__ == "__main__":
    print(json.dumps(_main(pickle.loads(Path(sys.argv[1]).read_bytes()))))
