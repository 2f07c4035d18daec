"""httpx over aiohttp's connector, with the policy applied where names become addresses."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import aiohttp
import httpx2
import yarl
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from libs.egress.addresses import classify
from libs.egress.policy import BodyTooLarge, EgressPolicy, EgressRefused

_KEEPALIVE_S = 30.0
# What httpx has already decided, or deliberately left out, is not to be added by aiohttp.
_NO_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    # Reading the certificates takes tens of milliseconds, and every transport reads the same ones.
    return httpx2.create_ssl_context(trust_env=False)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests only to addresses the policy allows; one connection pool an instance.

    The connector connects to the addresses that the guarded resolver returned, so no second look-up can change them.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        total_s: float | None = None,
        max_bytes: int | None = None,
        max_connections: int = 0,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._policy = policy
        self._total_s = total_s
        self._max_bytes = max_bytes
        self._max_connections = max_connections
        self._resolver = resolver
        self._tls = _tls()
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; redirects are left to the client, which comes back here for each."""
        self._check(request)
        session = self._session or self._open()
        timeout: dict[str, float | None] = request.extensions.get("timeout", {})
        with _httpx_errors(request):
            response = await session.request(
                request.method,
                yarl.URL(str(request.url), encoded=True),
                headers=request.headers.multi_items(),
                skip_auto_headers=_NO_AUTO_HEADERS,
                data=await request.aread() or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=self._total_s, sock_connect=timeout.get("connect"), sock_read=timeout.get("read")
                ),
            )
        return httpx2.Response(
            response.status,
            headers=list(response.raw_headers),
            stream=_Body(response, request, self._max_bytes),
            request=request,
            extensions={
                "http_version": b"HTTP/1.1",
                "reason_phrase": (response.reason or "").encode("latin-1", "replace"),
            },
        )

    async def aclose(self) -> None:
        """Close the pool and every connection in it."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _check(self, request: httpx2.Request) -> None:
        if request.url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol("Only http and https URLs are allowed", request=request)
        host = request.url.host
        if not host:
            raise httpx2.UnsupportedProtocol("The URL has no host", request=request)
        if self._policy.allows_host(host):
            return
        try:
            classify(host)
        except ValueError:
            return  # a name: the resolver decides
        if not self._policy.allows_address(host):
            raise EgressRefused(host, request=request)

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the client is closed")
        connector = aiohttp.TCPConnector(
            limit=self._max_connections,
            keepalive_timeout=_KEEPALIVE_S,
            ssl=self._tls,
            resolver=GuardedResolver(self._policy, self._resolver or ThreadedResolver()),
        )
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
        )
        return self._session


class GuardedResolver(AbstractResolver):
    """Resolves names, and returns only the addresses the policy allows."""

    def __init__(self, policy: EgressPolicy, inner: AbstractResolver) -> None:
        self._policy = policy
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The allowed addresses of a name; raises `EgressRefused` when it has none."""
        results = await self._inner.resolve(host, port, family)
        if self._policy.allows_host(host):
            return results
        allowed = [result for result in results if self._policy.allows_address(result["host"])]
        if results and not allowed:
            raise EgressRefused(host)
        return allowed

    async def close(self) -> None:
        """Close the inner resolver."""
        await self._inner.close()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse, request: httpx2.Request, max_bytes: int | None) -> None:
        self._response = response
        self._request = request
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        content = self._response.content
        with _httpx_errors(self._request):
            while chunk := await content.readany():
                if self._max_bytes is not None:
                    size += len(chunk)
                    if size > self._max_bytes:
                        raise BodyTooLarge(self._max_bytes, request=self._request)
                yield chunk

    async def aclose(self) -> None:
        # close(), not release(): an unread rest must cost the connection, not be awaited.
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


@contextmanager
def _httpx_errors(request: httpx2.Request) -> Generator[None, Any, None]:
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise httpx2.ConnectTimeout(str(error), request=request) from error
    except (TimeoutError, aiohttp.ServerTimeoutError) as error:
        raise httpx2.ReadTimeout(str(error), request=request) from error
    except aiohttp.ClientConnectorError as error:
        raise httpx2.ConnectError(str(error), request=request) from error
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
        raise httpx2.RemoteProtocolError(str(error), request=request) from error
    except aiohttp.InvalidURL as error:
        raise httpx2.UnsupportedProtocol(str(error), request=request) from error
    except (aiohttp.ClientError, OSError) as error:
        raise httpx2.ReadError(str(error), request=request) from error
    except EgressRefused as error:
        error.request = request
        raise
