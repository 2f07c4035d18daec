"""Subscribers, in a process of their own: `python -m bench.sockets JOB`.

It opens the sockets, subscribes, prints `ready`, and notes when frames arrive. After a line on standard input it prints
what it noted as JSON. WebSocket frames are read by hand: a thousand sockets must not cost more than what they measure.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import urlsplit

import uvloop

_MARK = re.compile(rb"mark-(\d+)!")
_TOGETHER = 50
"""Sockets that connect at once."""


@dataclass(frozen=True)
class Job:
    """`subscribes[i]` is the signed Subscribe of socket i. With `frames`, whole frames are noted, else only marks."""

    url: str
    subscribes: Sequence[bytes]
    frames: bool


class Subscribers:
    """The process, from outside. Times are wall clock and monotonic, in ns."""

    def __init__(self, job: Job) -> None:
        self._file = tempfile.NamedTemporaryFile(suffix=".job")  # noqa: SIM115 - lives as long as the process
        self._file.write(pickle.dumps(job))
        self._file.flush()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.sockets", self._file.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if (line := self._read()) != "ready":
            self.__exit__()
            raise RuntimeError(f"the subscribers failed: {line}")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._file.close()

    def results(self) -> Any:
        """With frames: a list of [wall ns, monotonic ns, frame]; else the arrivals (wall ns) by mark."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._read())

    def _read(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.readline().strip()


class _Notes:
    def __init__(self, frames: bool) -> None:
        self.keep_frames = frames
        self.frames: list[tuple[int, int, str]] = []
        self.arrivals: dict[int, list[int]] = {}
        self.lost = 0


class _Socket(asyncio.Protocol):
    def __init__(self, host: str, subscribe: bytes, notes: _Notes) -> None:
        self._host = host
        self._subscribe = subscribe
        self._notes = notes
        self._data = b""
        self._open = False
        self._transport: asyncio.Transport | None = None
        self.subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but name.
        self._transport = cast(asyncio.Transport, transport)
        key = base64.b64encode(os.urandom(16)).decode()
        self._transport.write(
            f"GET /agents/ws HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._notes.lost += 1
        if not self.subscribed.done():
            self.subscribed.set_exception(RuntimeError(f"socket closed: {exc or self._data[:200]!r}"))

    def data_received(self, data: bytes) -> None:
        wall, mono = time.time_ns(), time.monotonic_ns()
        self._data += data
        if not self._open:
            head = self._data.find(b"\r\n\r\n")
            if head < 0:
                return
            if not self._data.startswith(b"HTTP/1.1 101"):
                assert self._transport is not None
                self._transport.abort()
                return
            self._data, self._open = self._data[head + 4 :], True
            self._write(0x82, self._subscribe)
        while (frame := self._next()) is not None:
            self._take(*frame, wall, mono)

    def _next(self) -> tuple[int, bytes] | None:
        data = self._data
        if len(data) < 2:
            return None
        size, at = data[1] & 0x7F, 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, at = int.from_bytes(data[2:10], "big"), 10
        if len(data) < at + size or len(data) < at:
            return None
        self._data = data[at + size :]
        return data[0] & 0x0F, data[at : at + size]

    def _take(self, opcode: int, payload: bytes, wall: int, mono: int) -> None:
        if opcode == 9:
            self._write(0x8A, payload)
        elif opcode == 1:
            if self._notes.keep_frames:
                self._notes.frames.append((wall, mono, payload.decode()))
            elif b'"append"' in payload and (mark := _MARK.search(payload)):
                self._notes.arrivals.setdefault(int(mark[1]), []).append(wall)
            if not self.subscribed.done():
                if b'"subscribed"' in payload:
                    self.subscribed.set_result(None)
                elif b'"error"' in payload:
                    self.subscribed.set_exception(RuntimeError(payload.decode()))

    def _write(self, first: int, payload: bytes) -> None:
        # A mask of zeros is a mask.
        size = len(payload)
        head = bytes((first, 0x80 | size)) if size < 126 else bytes((first, 0xFE)) + size.to_bytes(2, "big")
        assert self._transport is not None
        self._transport.write(head + bytes(4) + payload)


async def _main(job: Job) -> None:
    at = urlsplit(job.url)
    assert at.hostname and at.port
    host = "127.0.0.1" if at.hostname == "localhost" else at.hostname
    loop = asyncio.get_running_loop()
    notes = _Notes(job.frames)
    sockets: list[_Socket] = []
    for begin in range(0, len(job.subscribes), _TOGETHER):
        some = [_Socket(at.netloc, subscribe, notes) for subscribe in job.subscribes[begin : begin + _TOGETHER]]
        await asyncio.gather(*(loop.create_connection(lambda s=s: s, host, at.port) for s in some))
        async with asyncio.timeout(30):
            await asyncio.gather(*(s.subscribed for s in some))
        sockets += some
    gc.freeze()
    gc.disable()
    asked = asyncio.Event()

    def on_input() -> None:
        if sys.stdin.readline():
            asked.set()
        else:
            # Whoever started this is gone: nobody would end it.
            os._exit(1)

    loop.add_reader(sys.stdin.fileno(), on_input)
    print("ready", flush=True)
    await asked.wait()
    if notes.lost:
        raise RuntimeError(f"{notes.lost} of {len(sockets)} sockets were closed")
    print(json.dumps(notes.frames if job.frames else notes.arrivals), flush=True)


if __name__ == "__main__":
    from bench import sockets as this

    uvloop.run(this._main(pickle.loads(Path(sys.argv[1]).read_bytes())))
