"""The world outside: downloads under the egress policy, and publishing to the HM server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import httpx2

from libs import egress
from libs.errors import BadGateway, TooLarge
from libs.hypermedia import CHUNK_BYTES, Blob, FileTree, PublishFailed, ipfs_url
from libs.hypermedia.server import HypermediaServer
from libs.protocol import limits
from services.memory.domain.downloads import invalid_url

_TOTAL_S = 3_300.0
"""Less than an object may take until it has an owner (libs.objects)."""
_TIMEOUTS = egress.Timeouts(connect_s=10.0, read_s=float(limits.DOWNLOAD_IDLE_TIMEOUT_S), total_s=_TOTAL_S)
_CONNECTIONS = 64
# Unpacking is left to who reads the file: what comes is what is stored.
_HEADERS = {"user-agent": "SeedAgents/1.0 (+https://seed.hyper.media)", "accept-encoding": "identity"}
_BATCH_BYTES = 8 * CHUNK_BYTES
"""Of leaves that are published in one request."""


@dataclass(frozen=True, slots=True)
class Download:
    """An answer that is about to be read. `pieces` raise BadGateway, and TooLarge beyond the account's room."""

    final_url: str
    content_type: str | None
    pieces: AsyncIterator[bytes]


class Downloader:
    """Fetches what accounts and models name. `max_bytes` is the operator's cap of one download (0: any)."""

    def __init__(self, policy: egress.EgressPolicy, max_bytes: int) -> None:
        self._cap = max_bytes
        self._client = egress.client(
            policy, _TIMEOUTS, max_connections=_CONNECTIONS, headers=_HEADERS, follow_redirects=True
        )

    @contextlib.asynccontextmanager
    async def fetch(self, url: str, room: int | None) -> AsyncIterator[Download]:
        """Ask for a URL, following redirects; `room` is how many bytes the account may store.

        Raises Invalid `Invalid download URL: <u>`, BadGateway `Could not download <u>: <cause>`.
        """
        try:
            request = self._client.build_request("GET", url)
        except (httpx2.InvalidURL, ValueError):
            raise invalid_url(url) from None
        try:
            response = await self._client.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as e:
            raise BadGateway(f"Could not download {url}: {_cause(e)}") from None
        try:
            if not response.is_success:
                raise BadGateway(f"Could not download {url}: HTTP {response.status_code}")
            content_type = response.headers.get("content-type") or None
            yield Download(str(response.url), content_type, self._pieces(url, response, room))
        finally:
            await response.aclose()

    async def _pieces(self, url: str, response: httpx2.Response, room: int | None) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for piece in response.aiter_bytes():
                size += len(piece)
                if self._cap and size > self._cap:
                    raise BadGateway(f"Download of {url} failed: the file is larger than {self._cap} bytes")
                if room is not None and size > room:
                    raise TooLarge("Account storage is full")
                yield piece
        except (httpx2.HTTPError, httpx2.StreamError) as e:
            raise BadGateway(f"Download of {url} failed: {_cause(e)}") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class Publisher:
    """Publishes files to the HM server, block by block: a few leaves are held at a time."""

    def __init__(self, server: HypermediaServer) -> None:
        self._server = server

    async def publish(self, path: str, pieces: AsyncIterator[bytes]) -> tuple[str, str]:
        """CID and URL of a file. Raises BadGateway `Could not publish <path>: <cause>`."""
        tree = FileTree()
        batch: list[Blob] = []
        root: Blob | None = None
        async for chunk in _chunks(pieces):
            root = tree.leaf(chunk)
            batch.append(root)
            if sum(len(blob.data) for blob in batch) >= _BATCH_BYTES:
                await self._send(path, batch)
                batch = []
        nodes = tree.nodes()
        await self._send(path, [*batch, *nodes])
        root = nodes[-1] if nodes else root
        assert root is not None, "also an empty file has a leaf"
        return root.name, ipfs_url(root)

    async def _send(self, path: str, blobs: Sequence[Blob]) -> None:
        if not blobs:
            return
        try:
            await self._server.publish(list(dict.fromkeys(blobs)))
        except PublishFailed as e:
            raise BadGateway(f"Could not publish {path}: {e}") from None


async def _chunks(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of CHUNK_BYTES; one empty piece when there are none."""
    left = bytearray()
    some = False
    async for piece in pieces:
        left += piece
        while len(left) >= CHUNK_BYTES:
            some = True
            yield bytes(left[:CHUNK_BYTES])
            del left[:CHUNK_BYTES]
    if left or not some:
        yield bytes(left)


def _cause(error: Exception) -> str:
    # The library's own texts may name addresses of this network: each cause gets words of ours.
    if isinstance(error, egress.EgressRefused):
        return f"{error.host} points to a private address"
    if isinstance(error, httpx2.TooManyRedirects):
        return "too many redirects"
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return "it leads to a URL that cannot be used"
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx2.ConnectError):
        return "could not connect"
    if isinstance(error, httpx2.DecodingError):
        return "the answer is packed in a way that cannot be read"
    return "the connection broke off"
