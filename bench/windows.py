"""Edges with and without parts of the replay window: `python -m bench.windows whole|unmarked|off`.

No setting turns the window off. `unmarked` leaves out what the edge does (the mark and the answer in Valkey), `off`
also what the owner does (the record of the signature in the transaction).
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from unittest import mock

from libs import process
from libs.stack import Stack
from libs.stack.probes import http_ready
from services.edge.api import dispatch
from services.edge.domain.replay import Answer, ReplayWindow
from services.edge.server import serve
from services.edge.settings import EdgeSettings

KINDS = ("whole", "unmarked", "off")
_PATIENCE_S = 30.0


class _Open(ReplayWindow):
    async def run(self, signature: bytes, ts: float, work: Callable[[], Awaitable[Answer]]) -> Answer:
        return await work()


@contextlib.contextmanager
def edges(stack: Stack) -> Iterator[dict[str, str]]:
    """An edge of each kind beside the stack's own; their URLs."""
    with contextlib.ExitStack() as running:
        ports = {kind: running.enter_context(_edge(stack, kind)) for kind in KINDS}
        end = time.monotonic() + _PATIENCE_S
        while not all(http_ready("127.0.0.1", port, "/api/health") for port in ports.values()):
            if time.monotonic() > end:
                raise RuntimeError("the edges did not start")
            time.sleep(0.05)
        yield {kind: f"http://127.0.0.1:{port}" for kind, port in ports.items()}


@contextlib.contextmanager
def _edge(stack: Stack, kind: str) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    env = {**stack.process("edge").command.env, "SEED_AGENTS_HTTP_PORT": str(port), "SEED_AGENTS_METRICS_PORT": "0"}
    with subprocess.Popen(
        [sys.executable, "-m", "bench.windows", kind], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as edge:
        try:
            yield port
        finally:
            edge.kill()


def _main(kind: str) -> None:
    with contextlib.ExitStack() as without:
        if kind == "unmarked":
            without.enter_context(mock.patch("services.edge.server.ReplayWindow", _Open))
        elif kind == "off":
            without.enter_context(mock.patch.object(dispatch, "MUTATING", frozenset()))
        process.run("edge", EdgeSettings, serve)


if __name__ == "__main__":
    _main(sys.argv[1])
