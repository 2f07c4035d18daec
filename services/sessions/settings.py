"""What can be configured of sessions: `SEED_AGENTS_<NAME>` variables."""

from __future__ import annotations

from pydantic import Field, field_validator

from libs.blobs import location
from libs.protocol import limits
from libs.settings import Settings


class SessionsSettings(Settings):
    """Settings of the service."""

    turn_sweep_ms: int = Field(
        default=2_000, ge=50, description="Age at which a turn that no worker has begun is announced to runs again."
    )
    user_action_lease_ms: int = Field(
        default=15_000,
        ge=1_000,
        description="A person's use of a verb that nobody executes any more is given up after so long.",
    )
    attachment_bytes: int = Field(
        default=limits.ATTACHMENT_BYTES, ge=1, le=limits.GIB, description="Largest attachment of a session."
    )
    attachments_per_session: int = Field(
        default=limits.ATTACHMENTS_PER_SESSION, ge=1, description="Attachments a session may have."
    )
    uploads_per_account: int = Field(
        default=limits.UPLOADS_PER_ACCOUNT,
        ge=1,
        description="Uploads in chunks that an account may have open, to sessions and again to memory.",
    )
    storage_per_account_bytes: int = Field(
        default=limits.STORAGE_PER_ACCOUNT_BYTES,
        ge=0,
        description="All attachments of an account together, and again all its memory files; 0: any.",
    )
    upload_idle_ms: int = Field(
        default=limits.UPLOAD_IDLE_MS, ge=1_000, description="An upload that nobody touches for so long is discarded."
    )

    @field_validator("blob_url")
    @classmethod
    def _usable(cls, value: str) -> str:
        return location(value)
