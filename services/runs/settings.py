"""What can be configured of runs: `SEED_AGENTS_<NAME>` variables."""

from __future__ import annotations

import msgspec
from pydantic import Field, field_validator

from libs.protocol.models import CHATGPT, CHATGPT_URL
from libs.settings import Settings, http_url


class RunsSettings(Settings):
    """Settings of the api role."""

    lease_ms: int = Field(default=15_000, ge=1_000, description="How long a claim holds without a heartbeat.")
    runs_per_account: int = Field(default=64, ge=1, description="Most runs of one account executed at once.")
    background_runs_per_account: int = Field(
        default=16, ge=1, description="Most background runs of one account executed at once."
    )
    hourly_runs_per_account: int = Field(
        default=0, ge=0, description="Most runs that one account begins within an hour; 0 is any number."
    )
    run_wall_ms: int = Field(
        default=0,
        ge=0,
        description="Age at which a new run pauses until it is signaled, instead of going on; 0 = never.",
    )
    hm_server_url: str = Field(default="https://hyper.media", description="Hypermedia server that agents search.")
    searxng_url: str = Field(default="", description="SearXNG that agents search the web with; empty: they cannot.")

    @field_validator("hm_server_url")
    @classmethod
    def _hm_url(cls, value: str) -> str:
        return http_url(value)

    @field_validator("searxng_url")
    @classmethod
    def _searxng_url(cls, value: str) -> str:
        return value and http_url(value)


class WorkerSettings(RunsSettings):
    """Settings of the worker role."""

    worker_slots: int = Field(
        default=128,
        ge=1,
        le=1_000,
        description="Turns one worker process executes at once: more than one account may have, so none holds all.",
    )
    poll_min_ms: int = Field(default=250, ge=10, description="Queue poll while there is work.")
    poll_max_ms: int = Field(default=2_000, ge=50, description="Queue poll of an idle worker; hints wake it earlier.")
    partial_interval_ms: int = Field(default=25, ge=0, description="Least time between two text deltas of a run.")
    provider_timeout_ms: int = Field(default=600_000, ge=1_000, description="Most time between two bytes of a reply.")
    delegation_depth: int = Field(default=3, ge=0, le=16, description="Longest chain of runs that delegate.")
    delegation_children: int = Field(default=10, ge=0, le=100, description="Awaited helpers a run may start.")
    delegation_detached: int = Field(default=10, ge=0, le=100, description="Sessions a session may start detached.")
    session_title_generation: bool = Field(default=True, description="Whether untitled sessions get a title.")
    allow_private_providers: bool = Field(
        default=False, description="Whether custom and ollama providers may be on private or loopback addresses."
    )
    allowed_provider_hosts: str = Field(
        default="", description="Comma-separated hosts of custom and ollama providers that are allowed all the same."
    )
    provider_vendor_urls: str = Field(
        default="", description="JSON object of provider type to base URL, in place of the vendors' own."
    )
    chatgpt_url: str = Field(
        default=CHATGPT_URL, description="Backend that answers under a ChatGPT subscription; it is given the sign-in."
    )

    @field_validator("chatgpt_url")
    @classmethod
    def _http_url(cls, value: str) -> str:
        return http_url(value)

    def vendor_urls(self) -> dict[str, str]:
        """Where the operator says that vendors are, by provider type, and ChatGPT's backend."""
        urls: dict[str, str] = msgspec.json.decode(self.provider_vendor_urls or b"{}", type=dict[str, str])
        return urls if self.chatgpt_url == CHATGPT_URL else {**urls, CHATGPT: self.chatgpt_url}
