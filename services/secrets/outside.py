"""Asking model providers over HTTP, under the egress policy."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx2

from libs import egress
from services.secrets.domain.models import ModelsRequest, Unreachable

_TIMEOUTS = egress.Timeouts(connect_s=5.0, read_s=10.0, total_s=12.0)
"""Within the deadline of an internal call (15 s), so that the caller hears why."""
_ANSWER_BYTES = 8 * 1024 * 1024
_CONNECTIONS = 64


class ModelsFetcher:
    """Fetches lists of models: from operators' URLs freely, from accounts' URLs as far as the policy allows."""

    def __init__(self, policy: egress.EgressPolicy, vendor_urls: Mapping[str, str]) -> None:
        hosts = frozenset(urlsplit(url).hostname or "" for url in vendor_urls.values()) - {""}
        self._operators = _client(egress.EgressPolicy(allowed_hosts=hosts))
        self._accounts = _client(policy)

    async def get(self, request: ModelsRequest) -> tuple[int, bytes]:
        """HTTP status and body; redirects are not followed. Raises Unreachable, whose text holds no URL and no key."""
        client = self._operators if request.by_operator else self._accounts
        headers = {"accept": "application/json", **request.headers}
        try:
            async with client.stream("GET", request.url, headers=headers) as response:
                if not response.is_success:
                    return response.status_code, b""
                return response.status_code, await egress.read_body(response, _ANSWER_BYTES)
        # The library's own texts may hold the URL, and Google's URL holds the key: each cause gets words of ours.
        except egress.EgressRefused as e:
            raise Unreachable(f"{e.host} points to a private address") from None
        except egress.BodyTooLarge:
            raise Unreachable("the answer is too large") from None
        except httpx2.TimeoutException:
            raise Unreachable("no answer in time") from None
        except httpx2.ConnectError:
            raise Unreachable("could not connect") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise Unreachable("the connection broke off") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._operators.aclose()
        await self._accounts.aclose()


def _client(policy: egress.EgressPolicy) -> httpx2.AsyncClient:
    return egress.client(policy, _TIMEOUTS, max_bytes=_ANSWER_BYTES, max_connections=_CONNECTIONS)
