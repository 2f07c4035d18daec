"""The HM server's API, as far as it is used (runtime.md, section 13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from libs import egress, wire
from libs.hypermedia.blobs import Blob, PublishFailed

_TIMEOUTS: Final = egress.Timeouts(connect_s=5.0, read_s=20.0, total_s=25.0)
_ANSWER_BYTES: Final = 1024 * 1024


class HypermediaServer:
    """The HM server at `url`, which is the operator's choice: it may be on a private address."""

    def __init__(self, url: str) -> None:
        self.url = url
        host = urlsplit(url).hostname or ""
        policy = egress.EgressPolicy(allowed_hosts=frozenset([host]))
        self._client = egress.client(policy, _TIMEOUTS, max_bytes=_ANSWER_BYTES, max_connections=16)

    async def publish(self, blobs: Sequence[Blob]) -> None:
        """Publish all of them in one request. Raises PublishFailed."""
        body = wire.encode({"blobs": [{"cid": blob.name, "data": blob.data} for blob in blobs]})
        headers = {"content-type": "application/cbor", "accept": "application/json"}
        try:
            async with self._client.stream(
                "POST", f"{self.url}/api/PublishBlobs", content=body, headers=headers
            ) as response:
                if not response.is_success:
                    raise PublishFailed(f"HTTP {response.status_code}")
                answer = await egress.read_body(response, _ANSWER_BYTES)
        except egress.BodyTooLarge:
            raise PublishFailed("the answer is too large") from None
        except httpx2.TimeoutException:
            raise PublishFailed("no answer in time") from None
        except httpx2.ConnectError:
            raise PublishFailed("could not connect") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise PublishFailed("the connection broke off") from None
        if not _taken(answer):
            raise PublishFailed("the answer is invalid")

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _taken(answer: bytes) -> bool:
    try:
        read: Any = msgspec.json.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    # Answers come wrapped: {"json": …, "meta": …}.
    inner = read.get("json") if isinstance(read, dict) else None
    return isinstance(inner, dict) and isinstance(inner.get("cids"), list)
