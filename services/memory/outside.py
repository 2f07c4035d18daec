"""The world outside: downloads under the egress policy."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

from libs import egress
from libs.errors import BadGateway, TooLarge
from libs.protocol import limits
from services.memory.domain.downloads import invalid_url

_TOTAL_S = 3_300.0
"""Less than an object may take until it has an owner (libs.objects)."""
_TIMEOUTS = egress.Timeouts(connect_s=10.0, read_s=float(limits.DOWNLOAD_IDLE_TIMEOUT_S), total_s=_TOTAL_S)
_CONNECTIONS = 64
# Unpacking is left to who reads the file: what comes is what is stored.
_HEADERS = {"user-agent": "SeedAgents/1.0 (+https://seed.hyper.media)", "accept-encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Download:
    """An answer that is about to be read. `pieces` raise BadGateway, and TooLarge beyond the account's room."""

    final_url: str
    content_type: str | None
    pieces: AsyncIterator[bytes]


class Downloader:
    """Fetches what accounts and models name. `max_bytes` is the operator's cap of one download (0: any).

    `gateway` is the operator's IPFS server; it may be on a private address.
    """

    def __init__(self, policy: egress.EgressPolicy, gateway: str, max_bytes: int) -> None:
        self._cap, self._gateway = max_bytes, gateway
        hosts = policy.allowed_hosts | {(urlsplit(gateway).hostname or "").lower()}
        self._anywhere = _client(policy)
        # Of its own: nobody else's URL may name the operator's host.
        self._operators = _client(egress.EgressPolicy(policy.allow_private, hosts))

    @contextlib.asynccontextmanager
    async def fetch(self, url: str, room: int | None) -> AsyncIterator[Download]:
        """Ask for a URL, following redirects; `room` is how many bytes the account may store.

        Raises Invalid `Invalid download URL: <u>`, BadGateway `Could not download <u>: <cause>`.
        """
        async with self._fetch(self._anywhere, url, url, room) as found:
            yield found

    @contextlib.asynccontextmanager
    async def fetch_ipfs(self, cid: str, room: int | None) -> AsyncIterator[Download]:
        """Ask the IPFS server for a file. Raises BadGateway `Could not download ipfs://<cid>: <cause>`."""
        url, named = f"{self._gateway}/ipfs/{cid}", f"ipfs://{cid}"
        async with self._fetch(self._operators, url, named, room) as found:
            yield Download(named, found.content_type, found.pieces)

    @contextlib.asynccontextmanager
    async def _fetch(
        self, client: httpx2.AsyncClient, url: str, named: str, room: int | None
    ) -> AsyncIterator[Download]:
        try:
            request = client.build_request("GET", url)
        except (httpx2.InvalidURL, ValueError):
            raise invalid_url(named) from None
        try:
            response = await client.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as e:
            raise BadGateway(f"Could not download {named}: {_cause(e)}") from None
        try:
            if not response.is_success:
                raise BadGateway(f"Could not download {named}: HTTP {response.status_code}")
            content_type = response.headers.get("content-type") or None
            yield Download(str(response.url), content_type, self._pieces(named, response, room))
        finally:
            await response.aclose()

    async def _pieces(self, named: str, response: httpx2.Response, room: int | None) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for piece in response.aiter_bytes():
                size += len(piece)
                if self._cap and size > self._cap:
                    raise BadGateway(f"Download of {named} failed: the file is larger than {self._cap} bytes")
                if room is not None and size > room:
                    raise TooLarge("Account storage is full")
                yield piece
        except (httpx2.HTTPError, httpx2.StreamError) as e:
            raise BadGateway(f"Download of {named} failed: {_cause(e)}") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._anywhere.aclose()
        await self._operators.aclose()


def _client(policy: egress.EgressPolicy) -> httpx2.AsyncClient:
    return egress.client(policy, _TIMEOUTS, max_connections=_CONNECTIONS, headers=_HEADERS, follow_redirects=True)


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
