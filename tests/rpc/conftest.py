"""A server of ours with one servicer whose answer a test decides, and peers that call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from seed.runs.v1 import runs_pb2, runs_pb2_grpc

from libs.rpc import Caller, Peer, RpcServer, TokenSigner, TokenVerifier

KEY = "internal-key-of-the-tests-of-rpc"
SERVICE = runs_pb2.DESCRIPTOR.services_by_name["RunsService"]


class Servicer:
    """GetRun does what `act` says."""

    def __init__(self) -> None:
        self.act: Callable[[Any, Caller], Awaitable[Any]] = self.echo

    async def echo(self, request: Any, caller: Caller) -> Any:
        return runs_pb2.GetRunResponse(access_role=request.run_id)

    async def GetRun(self, request: Any, caller: Caller) -> Any:
        return await self.act(request, caller)


class World:
    """Servers and peers; all are closed after the test."""

    def __init__(self) -> None:
        self.servicer = Servicer()
        self._servers: list[RpcServer] = []
        self._peers: list[Peer] = []

    async def serve(self, port: int = 0, audience: str = "runs", answers: Any = None) -> RpcServer:
        """A running server with the servicer."""
        server = RpcServer(TokenVerifier(audience, KEY), host="127.0.0.1", port=port, answers=answers)
        server.add(SERVICE, self.servicer)
        await server.start()
        self._servers.append(server)
        return server

    def peer(self, port: int, key: str = KEY, service: str = "runs") -> Peer:
        """A peer of the server on `port`, calling as the edge."""
        peer = Peer(service, f"127.0.0.1:{port}", TokenSigner("edge", key))
        self._peers.append(peer)
        return peer

    async def close(self) -> None:
        await asyncio.gather(*(peer.close() for peer in self._peers))
        await asyncio.gather(*(server.stop(0) for server in self._servers))


async def get(peer: Peer, run_id: str = "r", **options: Any) -> str:
    """Call GetRun; returns what it echoes."""
    stub = peer.stub(runs_pb2_grpc.RunsServiceStub)
    answer = await peer.call(stub.GetRun, runs_pb2.GetRunRequest(run_id=run_id), **options)
    return answer.access_role


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.close()
