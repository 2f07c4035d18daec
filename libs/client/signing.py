"""A key with a clock of its own: no two requests of a key carry the same timestamp."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from libs.protocol import PROTOCOL_VERSION
from libs.wire import Key, sign_envelope


class Signer:
    """Signs actions of one key. Clients that share a key in one process share its signer.

    Equal actions signed in one millisecond would be the same bytes, hence one request to the server's replay window; so
    the timestamps of a signer strictly increase.
    """

    def __init__(self, key: Key, protocol: int | None = PROTOCOL_VERSION) -> None:
        self.key = key
        self.protocol = protocol
        self._last_ts = 0

    def sign(self, action: Mapping[str, Any], account: bytes) -> bytes:
        """The signed envelope around `action` (wire names, plain values) for the account principal.

        A `ts` in the action is kept. Raises `libs.wire.EncodeError` when a value has no DAG-CBOR form.
        """
        ts = None if "ts" in action else self._next_ts()
        return sign_envelope(self.key, action, account, self.protocol, ts)

    def _next_ts(self) -> int:
        self._last_ts = max(time.time_ns() // 1_000_000, self._last_ts + 1)
        return self._last_ts
