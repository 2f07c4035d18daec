"""What can be configured of triggers: `SEED_AGENTS_<NAME>` variables."""

from __future__ import annotations

from pydantic import Field, field_validator

from libs.settings import Settings, http_url


class TriggersSettings(Settings):
    """Settings of all roles."""

    webhook_key: str = Field(
        default="",
        repr=False,
        description="Key that secrets of webhooks are made with; empty: one made from the internal key. "
        "Another key gives every webhook another secret.",
    )
    webhooks: bool = Field(default=True, description="Whether webhook triggers can be made and delivered to.")
    webhook_deliveries: int = Field(
        default=60, ge=1, description="Deliveries a minute that one webhook takes on the average."
    )
    activity_poll_interval_ms: int = Field(
        default=5_000, ge=10, description="Time between two looks at schedules and at the activity feed."
    )
    activity_page_size: int = Field(default=50, ge=1, le=500, description="Events a page of the activity feed.")
    activity_max_pages: int = Field(default=5, ge=1, le=100, description="Pages of the activity feed a poll.")
    activity_lease_ms: int = Field(
        default=30_000,
        ge=1_000,
        description="After how long another monitor takes over a feed from one that went silent; above the 20 s "
        "that a page may take.",
    )
    hm_server_url: str = Field(default="https://hyper.media", description="Hypermedia server whose activity is polled.")
    ended_runs_poll_ms: int = Field(
        default=500, ge=50, description="Time between two looks at runs that have ended, for what they trigger."
    )
    firing_sweep_ms: int = Field(
        default=5_000, ge=100, description="After how long a firing that nobody carried out is taken up again."
    )

    @field_validator("hm_server_url")
    @classmethod
    def _hm_url(cls, value: str) -> str:
        return http_url(value)
