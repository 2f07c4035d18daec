"""The guarded client."""

from __future__ import annotations

from collections.abc import Mapping

import httpx2

from libs.egress.policy import BodyTooLarge, EgressPolicy, Timeouts
from libs.egress.transport import GuardedTransport


def client(
    policy: EgressPolicy,
    timeouts: Timeouts | None = None,
    *,
    max_bytes: int | None = None,
    max_connections: int = 0,
    headers: Mapping[str, str] | None = None,
    follow_redirects: bool = False,
) -> httpx2.AsyncClient:
    """A client that can only reach what `policy` allows; close it with `aclose()`.

    `max_bytes` caps a body as it comes over the wire (`BodyTooLarge`); use `read_body` to cap what it unpacks to.
    `max_connections` 0 means no limit. Proxies and credentials of the environment are ignored on purpose. Raises
    `EgressRefused` for a refused address, `httpx2.UnsupportedProtocol` for anything but http and https, and the usual
    `httpx2` errors.
    """
    timeouts = timeouts or Timeouts()
    return httpx2.AsyncClient(
        transport=GuardedTransport(
            policy, total_s=timeouts.total_s, max_bytes=max_bytes, max_connections=max_connections
        ),
        timeout=timeouts.for_httpx(),
        headers=dict(headers or {}),
        follow_redirects=follow_redirects,
        max_redirects=5,
        trust_env=False,
    )


async def read_body(response: httpx2.Response, max_bytes: int) -> bytes:
    """The decoded body of a streamed response; raises `BodyTooLarge` as soon as it exceeds `max_bytes`."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > max_bytes:
            raise BodyTooLarge(max_bytes, request=response.request)
        parts.append(part)
    return b"".join(parts)
