"""Where requests may go, within which limits, and the errors that say no."""

from __future__ import annotations

from dataclasses import dataclass, field

import httpx2

from libs.egress.addresses import AddressKind, classify


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Where requests may go.

    `allow_private` opens loopback and private networks, never link-local and metadata addresses. `allowed_hosts` are
    host names or address literals that may resolve to anything.
    """

    allow_private: bool = False
    allowed_hosts: frozenset[str] = field(default_factory=frozenset)

    def allows_host(self, host: str) -> bool:
        """Whether the operator allowed this host by name, whatever its address."""
        return host.rstrip(".").lower() in self.allowed_hosts

    def allows_address(self, address: str) -> bool:
        """Whether an address (an IP literal) may be connected to."""
        kind = classify(address)
        return kind is AddressKind.PUBLIC or (kind is AddressKind.PRIVATE and self.allow_private)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: to connect, between two reads, and for the whole exchange (None: no limit)."""

    connect_s: float = 10.0
    read_s: float = 60.0
    total_s: float | None = None

    def for_httpx(self) -> httpx2.Timeout:
        """The limits that httpx keeps; `total_s` is the transport's."""
        return httpx2.Timeout(connect=self.connect_s, read=self.read_s, write=self.read_s, pool=None)


class EgressRefused(httpx2.ConnectError):
    """The policy does not let this request out; `host` is the one it was for."""

    def __init__(self, host: str, *, request: httpx2.Request | None = None) -> None:
        super().__init__(f"{host} points to a private address", request=request)
        self.host = host


class BodyTooLarge(httpx2.RequestError):
    """The response body is larger than the caller's cap; `max_bytes` is the cap."""

    def __init__(self, max_bytes: int, *, request: httpx2.Request | None = None) -> None:
        super().__init__(f"The response is larger than {max_bytes} bytes", request=request)
        self.max_bytes = max_bytes
