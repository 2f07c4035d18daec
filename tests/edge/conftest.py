"""An edge over real HTTP, with real NATS and Valkey and fake services behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from libs import wire
from libs.events import Bus
from libs.stack.keys import Keys
from libs.stack.stores import Stores
from services.edge.server import Edge
from services.edge.settings import EdgeSettings
from tests.edge.fakes import KEY, FakeRuns, FakeSecrets, FakeSessions, serve_fakes


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """NATS and Valkey for the whole session."""
    folder: Path = tmp_path_factory.mktemp("stores")
    logs = folder / "logs"
    logs.mkdir()
    made = Stores(folder, Keys(folder), logs, database_url="postgresql://none")
    made.start(timeout=30)
    yield made
    made.stop(1)


async def until(condition: Callable[[], Any], limit_s: float = 5.0) -> Any:
    """Wait for a condition; returns what made it true."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while not (found := condition()):
        assert loop.time() < end, "condition not met in time"
        await asyncio.sleep(0.01)
    return found


class Socket:
    """A WebSocket client that keeps every event."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws, self.events = ws, []
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.ws:
            self.events.append(msgspec.json.decode(message.data))

    async def wait(self, match: Callable[[Any], bool], start: int = 0) -> Any:
        return await until(lambda: next((e for e in self.events[start:] if match(e)), None))

    def of(self, kind: str, start: int = 0) -> list[Any]:
        return [e for e in self.events[start:] if e["_"] == kind]


@dataclass
class World:
    """The edge under test, what is behind it, and clients."""

    edge: Edge
    sessions: FakeSessions
    runs: FakeRuns
    secrets: FakeSecrets
    bus: Bus
    http: aiohttp.ClientSession
    stores: Stores
    settings: EdgeSettings

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.edge.port}"

    async def post(self, body: bytes, **headers: str) -> tuple[int, Any, Any]:
        headers = {"content-type": "application/cbor"} | {k.replace("_", "-"): v for k, v in headers.items()}
        async with self.http.post(self.url + "/api/message", data=body, headers=headers) as r:
            return r.status, wire.decode(await r.read()), r.headers

    async def act(self, key: wire.Key, action: str, /, account: bytes | None = None, **fields: Any) -> tuple[int, Any]:
        body = wire.sign_envelope(key, {"_": action, **fields}, account=account)
        status, answer, _ = await self.post(body)
        return status, answer

    async def socket(self) -> Socket:
        return Socket(await self.http.ws_connect(self.url + "/agents/ws"))

    async def subscribe(self, socket: Socket, key: wire.Key, name: str, **fields: Any) -> Any:
        start = len(socket.events)
        await socket.ws.send_bytes(wire.sign_envelope(key, {"_": "Subscribe", "key": name, **fields}))
        return await socket.wait(lambda e: e["_"] in ("subscribed", "error"), start)

    def tell(self, message: tuple[str, bytes]) -> None:
        assert self.bus.publish(*message)


Start = Callable[..., Any]


@pytest.fixture
async def start(stores: Stores) -> AsyncIterator[Start]:
    """Start a world with other settings: `await start(message_wait_ms=50)`."""
    undo: list[Callable[[], Any]] = []

    async def make(**changes: Any) -> World:
        sessions, runs, secrets = FakeSessions(), FakeRuns(), FakeSecrets()
        servers = await serve_fakes(sessions, runs, secrets)
        undo.extend(lambda server=server: server.stop(0.1) for server in servers.values())
        bus = Bus(stores.nats_url, "test")
        await bus.start()
        undo.append(bus.close)
        runs.bus = bus
        values: dict[str, Any] = {
            "http_hostname": "127.0.0.1",
            "http_port": 0,
            "internal_key": KEY,
            "nats_url": stores.nats_url,
            "redis_url": stores.redis_url,
            **{f"{name}_addr": f"127.0.0.1:{server.port}" for name, server in servers.items()},
        }
        settings = EdgeSettings(**(values | changes))
        edge = Edge(settings)
        await edge.start()
        undo.append(edge.stop)
        http = aiohttp.ClientSession()
        undo.append(http.close)
        return World(edge, sessions, runs, secrets, bus, http, stores, settings)

    yield make
    for step in reversed(undo):
        await step()


@pytest.fixture
async def world(start: Start) -> World:
    """A world with default settings."""
    return await start()
