"""The HM server's API, as far as it is used (runtime.md, section 13)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from libs import egress, wire
from libs.hypermedia.blobs import Blob, PublishFailed
from libs.protocol.limits import HM_READ_TIMEOUT_S, MIB

PUBLISHING: Final = egress.Timeouts(connect_s=5.0, read_s=20.0, total_s=25.0)
READING: Final = egress.Timeouts(connect_s=5.0, read_s=HM_READ_TIMEOUT_S, total_s=HM_READ_TIMEOUT_S)
_ANSWER_BYTES: Final = 8 * MIB


class AskFailed(Exception):
    """An HM server did not answer what it was asked. The text is a cause fit for the public."""


class HypermediaServer:
    """The HM server at `url`, which is the operator's choice: it may be on a private address."""

    def __init__(
        self,
        url: str,
        timeouts: egress.Timeouts = PUBLISHING,
        *,
        answer_bytes: int = _ANSWER_BYTES,
        max_connections: int = 16,
    ) -> None:
        self.url = url
        host = urlsplit(url).hostname or ""
        policy = egress.EgressPolicy(allowed_hosts=frozenset([host]))
        self._client = egress.client(policy, timeouts, max_bytes=answer_bytes, max_connections=max_connections)
        self._answer_bytes = answer_bytes

    async def publish(self, blobs: Sequence[Blob]) -> None:
        """Publish all of them in one request. Raises PublishFailed."""
        body = wire.encode({"blobs": [{"cid": blob.name, "data": blob.data} for blob in blobs]})
        headers = {"content-type": "application/cbor"}
        try:
            answer = await self._request("POST", "PublishBlobs", content=body, headers=headers)
        except AskFailed as e:
            raise PublishFailed(str(e)) from None
        if not (isinstance(answer, dict) and isinstance(answer.get("cids"), list)):
            raise PublishFailed("the answer is invalid")

    async def ask(self, key: str, parameters: Mapping[str, str]) -> Any:
        """What the API answers under a key, any JSON. Raises AskFailed."""
        return await self._request("GET", key, params=dict(parameters), headers={})

    async def _request(self, method: str, key: str, *, headers: dict[str, str], **more: Any) -> Any:
        headers = {**headers, "accept": "application/json"}
        try:
            async with self._client.stream(method, f"{self.url}/api/{key}", headers=headers, **more) as response:
                if not response.is_success:
                    raise AskFailed(f"HTTP {response.status_code}")
                return _unwrapped(await egress.read_body(response, self._answer_bytes))
        except egress.BodyTooLarge:
            raise AskFailed("the answer is too large") from None
        except httpx2.TimeoutException:
            raise AskFailed("no answer in time") from None
        except httpx2.ConnectError:
            raise AskFailed("could not connect") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise AskFailed("the connection broke off") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _unwrapped(answer: bytes) -> Any:
    read = _json(answer)
    # Answers come wrapped: {"json": …, "meta": …}.
    if not isinstance(read, dict) or "json" not in read:
        raise AskFailed("the answer is invalid")
    return read["json"]


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    # What an answer holds is often anybody's: one odd text or number must not keep the rest from being read.
    try:
        loose = json.loads(body.decode("utf-8", "replace"), parse_float=_finite, parse_constant=lambda _: None)
        return msgspec.json.decode(json.dumps(loose, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise AskFailed("the answer is invalid") from None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None
