"""The callables `search` and `web_search`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from libs import egress
from libs.hypermedia.server import READING, AskFailed, HypermediaServer
from libs.protocol.callables import SEARCH, WEB_SEARCH
from libs.protocol.limits import MIB, WEB_FETCH_TIMEOUT_S
from services.runs.domain import searches
from services.runs.domain.verbs import VerbError
from services.runs.verbs.contract import Actor, Output
from services.runs.verbs.tools import Executor

_ANSWER_BYTES: Final = 4 * MIB
_TIMEOUTS: Final = egress.Timeouts(connect_s=5.0, read_s=WEB_FETCH_TIMEOUT_S, total_s=WEB_FETCH_TIMEOUT_S)


class Search:
    """Searches the HM server as the owner of the agent sees it."""

    def __init__(self, server: HypermediaServer) -> None:
        self._server = server

    async def __call__(self, actor: Actor, given: Mapping[str, Any]) -> Output:
        """Run a search whose input fits the contract. Raises VerbError."""
        try:
            answer = await self._server.ask("Search", searches.hypermedia_parameters(given, actor.owner))
        except AskFailed as e:
            raise VerbError(f"Search failed: {e}") from None
        results = searches.hypermedia_results(answer, searches.page_size(given))
        return Output(searches.hypermedia_answer(given, results))


class WebSearch:
    """Searches the web through the SearXNG at `url`, which is the operator's choice; empty when there is none."""

    def __init__(self, url: str) -> None:
        self._url = url
        policy = egress.EgressPolicy(allowed_hosts=frozenset([urlsplit(url).hostname or ""]))
        self._client = egress.client(policy, _TIMEOUTS, max_bytes=_ANSWER_BYTES, max_connections=16)

    async def __call__(self, actor: Actor, given: Mapping[str, Any]) -> Output:
        """Run a search whose input fits the contract. Raises VerbError."""
        if not self._url:
            raise VerbError("web_search is not configured (this server has no SearXNG backend)")
        results, silent = searches.web_results(await self._ask(searches.web_parameters(given)))
        if not results and silent:
            again = searches.web_parameters(given, engines=searches.OTHER_ENGINES)
            results, silent = searches.web_results(await self._ask(again))
        return Output(searches.web_answer(given, results, silent))

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _ask(self, parameters: dict[str, str]) -> Any:
        url, headers = f"{self._url}/search", {"accept": "application/json"}
        try:
            async with self._client.stream("GET", url, params=parameters, headers=headers) as response:
                if not response.is_success:
                    raise VerbError(f"web_search failed: HTTP {response.status_code}")
                return msgspec.json.decode(await egress.read_body(response, _ANSWER_BYTES))
        except egress.BodyTooLarge:
            raise VerbError("web_search failed: the answer is too large") from None
        except httpx2.TimeoutException:
            raise VerbError("web_search failed: no answer in time") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise VerbError("web_search failed: the search engine cannot be reached") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise VerbError("web_search failed: the answer is invalid") from None


class Searching:
    """The searches of one process: the HM server at `hm_url`, the SearXNG at `searxng_url`, which may be empty."""

    def __init__(self, hm_url: str, searxng_url: str) -> None:
        self._server, self._web = HypermediaServer(hm_url, READING), WebSearch(searxng_url)
        self.executors: dict[str, Executor] = {SEARCH.name: Search(self._server), WEB_SEARCH.name: self._web}
        """By the names of their contracts."""

    async def close(self) -> None:
        """Close all connections."""
        await self._server.close()
        await self._web.close()
