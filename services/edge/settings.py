"""What can be configured of the edge: `SEED_AGENTS_<NAME>` variables."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from libs.protocol import limits
from libs.settings import Settings
from services.edge.domain.proxies import networks


class EdgeSettings(Settings):
    """Settings of the edge."""

    http_hostname: str = Field(default="0.0.0.0", min_length=1, description="Address of the public listener.")
    http_port: int = Field(default=3050, ge=0, le=65535, description="Port of the public listener; 0 is any free one.")

    clock_skew_ms: int = Field(
        default=limits.CLOCK_SKEW_MS, ge=0, description="How far a client's clock may be off, either way."
    )
    nesting_limit: int = Field(default=256, ge=1, le=1_000, description="Containers within containers in a request.")
    body_limit_bytes: int = Field(default=64 * limits.MIB, ge=1, description="Largest request body.")
    webhook_body_bytes: int = Field(default=256 * limits.KIB, ge=1, description="Largest delivery to a webhook.")
    bodies_in_flight_bytes: int = Field(
        default=limits.BODIES_IN_FLIGHT_BYTES, ge=1, description="Request bodies held at once, all together."
    )
    body_timeout_ms: int = Field(
        default=30_000, ge=1, description="How long a body may take, beyond one second for every 64 KiB of it."
    )
    message_wait_ms: int = Field(
        default=600_000, ge=0, description="How long MessageSession and RetrySession wait for the end of their turn."
    )
    rate_limits: bool = Field(
        default=True, description="Whether requests a second are limited; off for load and conformance runs."
    )
    requests_per_account: float = Field(
        default=limits.REQUESTS_PER_ACCOUNT,
        ge=0,
        description="Requests a second of one account, over all edges; 0: any.",
    )
    request_burst_per_account: int = Field(
        default=limits.REQUEST_BURST_PER_ACCOUNT, ge=1, description="Requests of one account at once, after a pause."
    )
    requests_per_address: float = Field(
        default=limits.REQUESTS_PER_ADDRESS,
        ge=0,
        description="Requests a second from one address, over all edges; 0: any.",
    )
    request_burst_per_address: int = Field(
        default=limits.REQUEST_BURST_PER_ADDRESS, ge=1, description="Requests from one address at once, after a pause."
    )

    trusted_proxies: str = Field(
        default="",
        description="Comma-separated addresses and CIDR blocks of proxies whose X-Forwarded-For is believed.",
    )

    sockets_per_address: int = Field(
        default=limits.SOCKETS_PER_ADDRESS, ge=1, description="WebSockets open from one address."
    )
    sockets_per_account: int = Field(
        default=limits.SOCKETS_PER_ACCOUNT, ge=1, description="WebSockets open for one account."
    )
    subscriptions_per_socket: int = Field(
        default=limits.SUBSCRIPTIONS_PER_SOCKET, ge=1, description="Keys one WebSocket may subscribe to."
    )
    send_queue_bytes: int = Field(
        default=limits.SEND_QUEUE_BYTES, ge=1, description="What may wait for a slow WebSocket."
    )
    ping_interval_ms: int = Field(
        default=limits.PING_INTERVAL_S * 1000, ge=1, description="Silence after which a WebSocket is pinged."
    )
    pong_timeout_ms: int = Field(
        default=limits.PONG_TIMEOUT_S * 1000, ge=1, description="How long a pinged WebSocket may stay silent."
    )
    heads_interval_ms: int = Field(
        default=5_000, ge=50, description="How often watched sessions are compared with their owner's state."
    )

    hm_server_url: str = Field(default="https://hyper.media", description="Hypermedia server, as clients reach it.")
    ipfs_server_url: str = Field(default="", description="IPFS server, as clients reach it; empty: the HM server.")
    searxng_url: str = Field(default="", description="SearXNG of `web_search`: clients are told whether there is one.")
    subscription_auth: bool = Field(default=False, description="Whether sign-in to provider subscriptions is offered.")
    commit: str = Field(default="unknown", description="Commit this was built from, shown by the version route.")
    branch: str = Field(default="unknown", description="Branch this was built from, shown by the version route.")
    build_date: str = Field(default="unknown", description="When this was built, shown by the version route.")

    @field_validator("hm_server_url", "ipfs_server_url", "searxng_url")
    @classmethod
    def _url(cls, value: str) -> str:
        if value and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).netloc):
            raise ValueError("must be an http or https URL")
        return value.rstrip("/")

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        networks(value)
        return value

    @model_validator(mode="after")
    def _budget(self) -> EdgeSettings:
        if self.bodies_in_flight_bytes < self.body_limit_bytes:
            raise ValueError("BODIES_IN_FLIGHT_BYTES must not be less than BODY_LIMIT_BYTES")
        return self
