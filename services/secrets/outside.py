"""Asking model providers over HTTP, for models and for tokens, under the egress policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import httpx2
import msgspec

from libs import egress
from services.secrets.domain.models import ModelsRequest, Unreachable
from services.secrets.domain.oauth import OAuthClient, OAuthFailure

_TIMEOUTS = egress.Timeouts(connect_s=5.0, read_s=10.0, total_s=12.0)
"""Within the deadline of an internal call (15 s), so that the caller hears why."""
_ANSWER_BYTES = 8 * 1024 * 1024
_CONNECTIONS = 64
_TOKEN_BYTES = 256 * 1024
_OUR_FAULTS = ("invalid_client", "invalid_request", "invalid_scope", "unauthorized_client", "unsupported_grant_type")
"""OAuth errors (RFC 6749, section 5.2) that say nothing about the user's code or token."""


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


class TokenPoster:
    """Asks providers for tokens. Their URLs are the operator's."""

    def __init__(self, clients: Iterable[OAuthClient]) -> None:
        hosts = frozenset(urlsplit(client.token_url).hostname or "" for client in clients) - {""}
        self._client = _client(egress.EgressPolicy(allowed_hosts=hosts))

    async def post(self, url: str, form: Mapping[str, str]) -> bytes:
        """The body of a 2xx answer to a form. Raises OAuthFailure, whose text holds neither codes nor tokens."""
        headers = {"accept": "application/json"}
        try:
            async with self._client.stream("POST", url, data=dict(form), headers=headers) as response:
                body = await egress.read_body(response, _TOKEN_BYTES)
        except egress.BodyTooLarge:
            raise OAuthFailure("The provider's answer is too large") from None
        except httpx2.TimeoutException:
            raise OAuthFailure("The provider did not answer in time") from None
        except httpx2.ConnectError:
            raise OAuthFailure("Could not connect to the provider") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise OAuthFailure("The connection to the provider broke off") from None
        if response.is_success:
            return body
        refused = response.status_code in (400, 401, 403) and _oauth_error(body) not in _OUR_FAULTS
        raise OAuthFailure(f"The provider answered HTTP {response.status_code}", refused=refused)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _oauth_error(body: bytes) -> object:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return answer.get("error") if isinstance(answer, dict) else None


def _client(policy: egress.EgressPolicy) -> httpx2.AsyncClient:
    return egress.client(policy, _TIMEOUTS, max_bytes=_ANSWER_BYTES, max_connections=_CONNECTIONS)
