"""A NATS of our own that a test may kill, and a server that says what a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.events import Bus
from libs.stack import ManagedProcess, Stores
from libs.stack.keys import Keys


async def until(condition: Callable[[], Any], within_s: float = 15.0) -> Any:
    """What `condition` gives once that is true."""
    async with asyncio.timeout(within_s):
        while True:
            if found := condition():
                return found
            await asyncio.sleep(0.01)


class Nats:
    """The server."""

    def __init__(self, process: ManagedProcess, url: str) -> None:
        self.process, self.url = process, url

    async def kill(self) -> None:
        await asyncio.to_thread(self.process.kill)

    async def stop(self) -> None:
        await asyncio.to_thread(self.process.stop)

    async def start(self) -> None:
        await asyncio.to_thread(self.process.start)
        await asyncio.to_thread(self.process.wait_ready, 20.0)


@pytest.fixture(scope="session")
def nats_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    folder: Path = tmp_path_factory.mktemp("events")
    stores = Stores(folder, Keys(folder), folder, database_url="postgresql://unused", redis_url="redis://unused")
    stores.start()
    assert stores.nats is not None
    yield Nats(stores.nats, stores.nats_url)
    stores.stop(1)


@pytest.fixture
async def nats_server(nats_process: Nats) -> Nats:
    """The server, running."""
    await nats_process.start()
    return nats_process


@pytest.fixture
async def buses(nats_server: Nats) -> AsyncIterator[Callable[[], Any]]:
    """Makes connected buses; all are closed after the test."""
    made: list[Bus] = []

    async def make() -> Bus:
        bus = Bus(nats_server.url, f"tests-{len(made)}")
        await bus.start()
        made.append(bus)
        return bus

    yield make
    await asyncio.gather(*(bus.close() for bus in made))


class FakeServer:
    """Speaks as much NATS as a client needs to connect; `say` speaks for itself, `mute` stops answering."""

    def __init__(self) -> None:
        self.connections = 0
        self.subjects: list[str] = []
        self.answers = True
        self.reads = True
        self._server: Any = None
        self._writers: list[asyncio.StreamWriter] = []
        self._unread = asyncio.Event()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=4096)
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def say(self, line: str) -> None:
        """Send a line to whoever is connected, and hang up."""
        for writer in self._writers:
            writer.write(line.encode() + b"\r\n")
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        info = {"server_id": "fake", "version": "2.10.0", "max_payload": 8 * 1024 * 1024, "headers": True}
        writer.write(f"INFO {json.dumps(info)}\r\n".encode())
        try:
            while line := await reader.readline():
                if line.startswith(b"SUB "):
                    self.subjects.append(line.split()[1].decode())
                if line.strip() == b"PING" and self.answers:
                    writer.write(b"PONG\r\n")
                if not self.reads:
                    await self._unread.wait()
        except (ConnectionError, ValueError):
            pass
        finally:
            if writer in self._writers:
                self._writers.remove(writer)
            writer.close()

    async def close(self) -> None:
        self._unread.set()
        self._server.close()
        for writer in list(self._writers):
            writer.close()


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    server = FakeServer()
    yield server
    await server.close()
