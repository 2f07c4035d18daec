"""What can be configured of sessions: `SEED_AGENTS_<NAME>` variables."""

from __future__ import annotations

from pydantic import Field

from libs.settings import Settings


class SessionsSettings(Settings):
    """Settings of the service."""

    turn_sweep_ms: int = Field(
        default=2_000, ge=50, description="Age at which a turn that no worker has begun is announced to runs again."
    )
