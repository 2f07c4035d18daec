"""The activity feed of an HM server (runtime.md, section 13)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from libs import egress

_TIMEOUTS: Final = egress.Timeouts(connect_s=5.0, read_s=20.0, total_s=20.0)
_PAGE_BYTES: Final = 32 * 1024 * 1024


class FeedFailed(Exception):
    """An HM server gave no page of events. The text is a cause fit for the public."""


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Events in the server's order, as they came: any JSON. `next_token` is empty on the last page."""

    events: list[Any]
    next_token: str


class ActivityFeed:
    """Reads events of the HM server at `url`, which is the operator's choice: it may be on a private address."""

    def __init__(self, url: str, *, max_connections: int = 64) -> None:
        self._url = f"{url.rstrip('/')}/api/ListEvents"
        policy = egress.EgressPolicy(allowed_hosts=frozenset([urlsplit(url).hostname or ""]))
        self._client = egress.client(policy, _TIMEOUTS, max_bytes=_PAGE_BYTES, max_connections=max_connections)

    async def page(self, account: str, size: int, token: str = "") -> FeedPage:
        """Up to `size` events as `account` sees them, what the server observed last first. Takes at most 20 s.

        `token` is the `next_token` of the page before. Raises FeedFailed.
        """
        parameters = {"pageSize": str(size), "currentAccount": account, "order": "observed"}
        if token:
            parameters["pageToken"] = token
        try:
            async with self._client.stream(
                "GET", self._url, params=parameters, headers={"accept": "application/json"}
            ) as response:
                if not response.is_success:
                    raise FeedFailed(f"HTTP {response.status_code}")
                body = await egress.read_body(response, _PAGE_BYTES)
        except egress.BodyTooLarge:
            raise FeedFailed("the answer is too large") from None
        except httpx2.TimeoutException:
            raise FeedFailed("no answer in time") from None
        except httpx2.ConnectError:
            raise FeedFailed("could not connect") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise FeedFailed("the connection broke off") from None
        return _read(body)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _read(body: bytes) -> FeedPage:
    wrapped = _json(body)
    # Answers come wrapped: {"json": …, "meta": …}.
    inner = wrapped.get("json") if isinstance(wrapped, dict) else None
    events = inner.get("events") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(events, list):
        raise FeedFailed("the answer is invalid")
    token = inner.get("nextPageToken")
    return FeedPage(events, token if isinstance(token, str) else "")


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    # One odd text or number of somebody's event must not keep a whole page from being read.
    try:
        loose = json.loads(body.decode("utf-8", "replace"), parse_float=_finite, parse_constant=lambda _: None)
        return msgspec.json.decode(json.dumps(loose, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise FeedFailed("the answer is invalid") from None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None
