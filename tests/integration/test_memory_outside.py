"""Memory and the world outside, over HTTP: downloads, files of IPFS, publishing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from msgspec import UNSET
from seed.memory.v1 import memory_pb2, memory_pb2_grpc

from libs.errors import SeedError
from libs.hypermedia import file_blobs
from libs.rpc import Peer, TokenSigner
from libs.stack import Stack
from libs.stack.ports import free_ports
from tests.integration.conftest import ENVIRONMENT
from tests.integration.test_uploads import some
from tests.support.hypermedia import FakeHypermediaServer
from tests.support.kit import World, refused
from tests.support.memory import content, listed, only_owned_objects_are_left, write

MIB = 1 << 20
DOWNLOAD = 5 * MIB


@pytest.fixture(scope="module")
def hm_port() -> int:
    (port,) = free_ports(1)
    return port


@pytest.fixture(scope="module")
def ipfs_port() -> int:
    (port,) = free_ports(1)
    return port


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, hm_port: int, ipfs_port: int) -> Iterator[Stack]:
    """A stack that downloads from 127.0.0.1 and publishes to a server of the tests."""
    env = {
        **ENVIRONMENT,
        "SEED_AGENTS_ALLOWED_DOWNLOAD_HOSTS": "127.0.0.1",
        "SEED_AGENTS_DOWNLOAD_BYTES": str(DOWNLOAD),
        "SEED_AGENTS_MEMORY_SWEEP_MS": "100",
        "SEED_AGENTS_HM_SERVER_URL": f"http://127.0.0.1:{hm_port}",
        "SEED_AGENTS_IPFS_SERVER_URL": f"http://localhost:{ipfs_port}",
    }
    with Stack(tmp_path_factory.mktemp("memory") / "data", 0, edges=1, workers=1, env=env) as running:
        yield running


@pytest.fixture
async def world(home: Stack) -> AsyncIterator[World]:
    async with World(home.urls) as made:
        yield made


class Site:
    """A web server to download from."""

    def __init__(self) -> None:
        self.url = ""
        self.agents: list[str] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.agents.append(request.headers.get("user-agent", ""))
        name = request.match_info["name"]
        port = self.url.rpartition(":")[2]
        match name:
            case "text":
                return web.Response(text="plain", content_type="text/markdown")
            case "again":
                raise web.HTTPFound("/files/final.txt")
            case "bare":
                return web.Response(body=b"bare", content_type="application/x-bare")
            case "final.txt":
                return web.Response(text="final")
            case "inside":
                raise web.HTTPFound(f"http://localhost:{port}/text")
            case "loop":
                raise web.HTTPFound("/loop")
            case "odd":
                raise web.HTTPFound("ftp://127.0.0.1/x")
            case "large":
                return web.Response(body=bytes(DOWNLOAD + 1))
            case "broken":
                response = web.StreamResponse(headers={"Content-Length": "100"})
                await response.prepare(request)
                await response.write(b"half")
                assert request.transport is not None
                request.transport.close()
                return response
        raise web.HTTPNotFound


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_get("/{name}", made.serve)
    app.router.add_get("/files/{name}", made.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def test_downloads(world: World, home: Stack, site: Site, unused_port: int) -> None:
    owner = await world.owner()
    c, agent = owner.client, owner.agent

    async def download(url: str, **fields: Any) -> Any:
        return await c.call("DownloadAgentMemoryFile", agentId=agent, url=url, **fields)

    got = await download(f" {site.url}/text ")
    assert (got.entry.path, got.entry.size, got.entry.mime_type) == ("downloads/text.md", 5, "text/markdown")
    assert (got.final_url, got.content_type) == (f"{site.url}/text", "text/markdown; charset=utf-8")
    assert await content(c, agent, "downloads/text.md") == "plain"
    assert site.agents[0].startswith("SeedAgents/")
    got = await download(f"{site.url}/again")
    assert (got.entry.path, got.final_url) == ("downloads/final.txt", f"{site.url}/files/final.txt")
    got = await download(f"{site.url}/text", path="x//y")
    assert got.entry.path == "x/y.md"

    local = f"http://localhost:{site.url.rpartition(':')[2]}/text"
    nobody = f"http://127.0.0.1:{unused_port}/x"
    could_not = f"Could not download {site.url}"
    for url, text in (
        (f"{site.url}/missing", f"{could_not}/missing: HTTP 404"),
        (f"{site.url}/loop", f"{could_not}/loop: too many redirects"),
        (f"{site.url}/odd", f"{could_not}/odd: it leads to a URL that cannot be used"),
        (f"{site.url}/inside", f"{could_not}/inside: localhost points to a private address"),
        (local, f"Could not download {local}: localhost points to a private address"),
        (nobody, f"Could not download {nobody}: could not connect"),
        (f"{site.url}/large", f"Download of {site.url}/large failed: the file is larger than {DOWNLOAD} bytes"),
        (f"{site.url}/broken", f"Download of {site.url}/broken failed: the connection broke off"),
    ):
        with refused(502, text):
            await download(url)
    for url, text in (
        (5, "Download URL is required"),
        ("nonsense", "Invalid download URL: nonsense"),
        ("ftp://a/b", "Download URL must use http or https"),
    ):
        with refused(400, text):
            await c.call("DownloadAgentMemoryFile", agentId=agent, url=url)
    with refused(400, "Memory path is a directory, not a file: x"):
        await download(f"{site.url}/files/bare", path="x")
    assert [path for path, kind, _ in await listed(c, agent) if kind == "file"] == [
        "downloads/final.txt",
        "downloads/text.md",
        "x/y.md",
    ]
    await only_owned_objects_are_left(home)


async def test_files_of_ipfs_come_from_the_operators_server(world: World, home: Stack, ipfs_port: int) -> None:
    owner = await world.owner()
    cid = file_blobs(b"hello")[-1].name
    memory = Peer("memory", home.addresses["memory"], TokenSigner("runs-worker", home.internal_key))
    fetch = memory.stub(memory_pb2_grpc.MemoryServiceStub).DownloadFromIpfs

    async def download(cid: str, path: str = "", account: str = owner.client.account) -> memory_pb2.Entry:
        request = memory_pb2.DownloadFromIpfsRequest(agent_id=owner.agent, cid=cid, path=path)
        return (await memory.call(fetch, request, account=account)).entry

    async def serve(request: web.Request) -> web.Response:
        if request.match_info["cid"] != cid:
            raise web.HTTPNotFound
        return web.Response(body=b"hello", content_type="image/png")

    app = web.Application()
    app.router.add_get("/ipfs/{cid}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", ipfs_port).start()
    try:
        entry = await download(cid)
        assert (entry.path, entry.size, entry.mime_type) == (f"ipfs/{cid}.png", 5, "image/png")
        assert (await download(cid, "a/b.bin")).path == "a/b.bin"
        for asked, status, text in (
            ("b" * 59, 502, f"Could not download ipfs://{'b' * 59}: HTTP 404"),
            ("../x", 400, "Invalid IPFS CID: ../x"),
        ):
            with pytest.raises(SeedError) as e:
                await download(asked)
            assert (e.value.status, e.value.message) == (status, text)
        with pytest.raises(SeedError) as e:
            await download(cid, account=world.client().account)
        assert (e.value.status, e.value.message) == (404, "Agent not found")
    finally:
        await runner.cleanup()
        await memory.close()


async def test_publishing(world: World, hm_port: int) -> None:
    owner = await world.owner()
    c, agent = owner.client, owner.agent
    small, large = "small", some(20 * MIB + 5)
    await write(c, agent, "a/small.txt", small)
    await write(c, agent, "large", large)
    with refused(502, "Could not publish a/small.txt: could not connect"):
        await c.call("UploadAgentMemoryFileToIpfs", agentId=agent, path="a/small.txt")
    server = FakeHypermediaServer()
    await server.start(hm_port)
    try:
        got = await c.call("UploadAgentMemoryFileToIpfs", agentId=agent, path="a//small.txt")
        (leaf,) = file_blobs(small.encode())
        assert (got.path, got.cid, got.url) == ("a/small.txt", leaf.name, f"ipfs://{leaf.name}")
        assert (got.size, got.mime_type) == (5, "text/plain")
        assert server.published == [[{"cid": leaf.name, "data": small.encode()}]]
        server.answer()
        got = await c.call("UploadAgentMemoryFileToIpfs", agentId=agent, path="large")
        blobs = file_blobs(large)
        assert got.cid == blobs[-1].name and got.mime_type is UNSET
        sent = [blob for batch in server.published for blob in batch]
        assert sent == [{"cid": blob.name, "data": blob.data} for blob in blobs]
        assert len(server.published) > 1 and server.published[-1][-1]["cid"] == got.cid, "the root comes last"
        server.answer(500)
        with refused(502, "Could not publish large: HTTP 500"):
            await c.call("UploadAgentMemoryFileToIpfs", agentId=agent, path="large")
    finally:
        await server.stop()
