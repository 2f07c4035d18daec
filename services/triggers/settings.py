"""What can be configured of triggers: `SEED_AGENTS_<NAME>` variables."""

from __future__ import annotations

from pydantic import Field

from libs.settings import Settings


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
        default=5_000, ge=100, description="Time between two looks at schedules and at the activity feed."
    )
    firing_sweep_ms: int = Field(
        default=5_000, ge=100, description="After how long a firing that nobody carried out is taken up again."
    )
