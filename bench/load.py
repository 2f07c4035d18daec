"""The load generator, in a process of its own: `python -m bench.load JOB` prints one JSON line.

Every client is one keep-alive connection in a closed loop: send, wait for the whole answer, send the next. Requests are
signed and framed beforehand, so that what it costs stays far below what it measures.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop


@dataclass(frozen=True)
class Job:
    """What to send. `clients[i]` are the bodies of client i, in order."""

    url: str
    clients: Sequence[Sequence[bytes]]
    seconds: float
    repeat: bool  # go round the bodies (reads), or stop when they are used up
    path: str = "/api/message"
    warm_up_s: float = 0.5  # what is sent in this time is not counted


@dataclass(frozen=True)
class Load:
    """What came back. Latencies in milliseconds, from the write of a request to the last byte of its answer."""

    clients: int
    requests: int
    seconds: float
    per_second: float
    p50: float
    p95: float
    p99: float
    longest: float
    statuses: dict[str, int]
    error: str  # the first answer that was not 200


def run(job: Job) -> Load:
    """Run the job in a process of its own. Raises RuntimeError when that fails."""
    with _started(job) as process:
        out, errors = process.communicate(timeout=job.seconds + 60)
    if process.returncode != 0:
        raise RuntimeError(f"the load generator failed:\n{errors}")
    return Load(**json.loads(out))


@contextlib.contextmanager
def _started(job: Job) -> Iterator[subprocess.Popen[str]]:
    with tempfile.NamedTemporaryFile(suffix=".job") as file:
        file.write(pickle.dumps(job))
        file.flush()
        command = [sys.executable, "-m", "bench.load", file.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()


@contextlib.contextmanager
def in_background(job: Job) -> Iterator[None]:
    """Run the job meanwhile, for what it does to others; it ends with the block. RuntimeError when it ended before."""
    with _started(job) as process:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the load in the background ended:\n{process.communicate()[1]}")


class _Client(asyncio.Protocol):
    def __init__(self, requests: list[bytes], repeat: bool, record_from: float, end: float) -> None:
        self.requests = requests
        self.repeat = repeat
        self.record_from = record_from
        self.end = end
        self.latencies: list[int] = []
        self.statuses: Counter[str] = Counter()
        self.error = ""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.last = 0.0
        self._at = 0
        self._sent = 0
        self._data = b""
        self._needed = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but name.
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.error = self.error or f"connection lost: {exc}"
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        data = self._data + data if self._data else data
        if not self._needed:
            head = data.find(b"\r\n\r\n")
            if head < 0:
                self._data = data
                return
            length = data.lower().index(b"content-length:", 0, head) + 15
            self._needed = head + 4 + int(data[length : data.index(b"\r", length)])
        if len(data) < self._needed:
            self._data = data
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        now = time.monotonic()
        status = data[9:12].decode()
        if self._started_at >= self.record_from:
            self.latencies.append(time.perf_counter_ns() - self._sent)
            self.statuses[status] += 1
            self.last = now
        if status != "200" and not self.error:
            self.error = data[-200:].decode("utf-8", "replace")
        self._data, self._needed = b"", 0
        if now >= self.end:
            self._finish()
        else:
            self._send()

    def _send(self) -> None:
        if self._at == len(self.requests):
            if not self.repeat:
                self._finish()
                return
            self._at = 0
        request = self.requests[self._at]
        self._at += 1
        self._started_at = time.monotonic()
        self._sent = time.perf_counter_ns()
        assert self._transport is not None
        self._transport.write(request)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        assert self._transport is not None
        self._transport.close()


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the sorted values do not exceed."""
    return values[min(len(values) - 1, int(len(values) * share))]


async def _main(job: Job) -> Load:
    at = urlsplit(job.url)
    assert at.hostname and at.port
    head = (
        f"POST {job.path} HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/cbor\r\n"
        "Accept: application/cbor\r\nContent-Length: "
    ).encode()
    framed = [[head + str(len(b)).encode() + b"\r\n\r\n" + b for b in bodies] for bodies in job.clients]
    start = time.monotonic() + job.warm_up_s
    loop = asyncio.get_running_loop()
    clients: list[_Client] = []
    gc.freeze()
    gc.disable()
    for requests in framed:
        client = _Client(requests, job.repeat, start, start + job.seconds)
        # localhost may be two addresses; the embedded edge listens on IPv4.
        host = "127.0.0.1" if at.hostname == "localhost" else at.hostname
        await loop.create_connection(lambda client=client: client, host, at.port)
        clients.append(client)
    await asyncio.gather(*(client.done for client in clients))
    latencies = sorted(x / 1e6 for client in clients for x in client.latencies)
    if not latencies:
        raise RuntimeError(f"nothing was measured: {next((c.error for c in clients if c.error), '')}")
    seconds = max(client.last for client in clients) - start
    statuses = sum((client.statuses for client in clients), Counter[str]())
    return Load(
        clients=len(clients),
        requests=len(latencies),
        seconds=seconds,
        per_second=len(latencies) / seconds,
        p50=percentile(latencies, 0.5),
        p95=percentile(latencies, 0.95),
        p99=percentile(latencies, 0.99),
        longest=latencies[-1],
        statuses=dict(statuses),
        error=next((c.error for c in clients if c.error), ""),
    )


if __name__ == "__main__":
    # A pickle of this module's own making, handed over by `run`; its classes are known as bench.load's.
    from bench import load as this

    print(json.dumps(asdict(uvloop.run(this._main(pickle.loads(Path(sys.argv[1]).read_bytes()))))))
