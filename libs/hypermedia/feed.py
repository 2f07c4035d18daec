"""The activity feed of an HM server (runtime.md, section 13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from libs import egress
from libs.hypermedia.server import AskFailed, HypermediaServer
from libs.protocol.limits import MIB

_TIMEOUTS: Final = egress.Timeouts(connect_s=5.0, read_s=20.0, total_s=20.0)
_PAGE_BYTES: Final = 16 * MIB


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Events in the server's order, as they came: any JSON. `next_token` is empty on the last page."""

    events: list[Any]
    next_token: str


class ActivityFeed:
    """Reads events of the HM server at `url`, which is the operator's choice: it may be on a private address."""

    def __init__(self, url: str, *, max_connections: int = 64) -> None:
        self._server = HypermediaServer(
            url.rstrip("/"), _TIMEOUTS, answer_bytes=_PAGE_BYTES, max_connections=max_connections
        )

    async def page(self, account: str, size: int, token: str = "") -> FeedPage:
        """Up to `size` events as `account` sees them, what the server observed last first. Takes at most 20 s.

        `token` is the `next_token` of the page before. Raises AskFailed.
        """
        parameters = {"pageSize": str(size), "currentAccount": account, "order": "observed"}
        if token:
            parameters["pageToken"] = token
        answer = await self._server.ask("ListEvents", parameters)
        events = answer.get("events") if isinstance(answer, dict) else None
        if not isinstance(events, list):
            raise AskFailed("the answer is invalid")
        following = answer.get("nextPageToken")
        return FeedPage(events, following if isinstance(following, str) else "")

    async def close(self) -> None:
        """Close all connections."""
        await self._server.close()
