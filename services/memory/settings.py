"""What can be configured of memory: `SEED_AGENTS_<NAME>` variables."""

from __future__ import annotations

from pydantic import Field, field_validator

from libs.blobs import location
from libs.protocol import limits
from libs.settings import Settings, http_url


class MemorySettings(Settings):
    """Settings of the service."""

    uploads_per_account: int = Field(
        default=limits.UPLOADS_PER_ACCOUNT, ge=1, description="Uploads in chunks that an account may have open."
    )
    upload_idle_ms: int = Field(
        default=limits.UPLOAD_IDLE_MS, ge=1_000, description="An upload that nobody touches for so long is discarded."
    )
    storage_per_account_bytes: int = Field(
        default=limits.STORAGE_PER_ACCOUNT_BYTES, ge=0, description="Memory files of an account, all together; 0: any."
    )
    download_bytes: int = Field(default=0, ge=0, description="Largest download into memory; 0: any.")
    allow_private_downloads: bool = Field(
        default=False, description="Whether downloads into memory may be from private or loopback addresses."
    )
    allowed_download_hosts: str = Field(
        default="", description="Comma-separated hosts that downloads are allowed from all the same."
    )
    hm_server_url: str = Field(
        default="https://hyper.media", description="Hypermedia server that files are published to."
    )
    ipfs_server_url: str = Field(
        default="", description="IPFS server that files are fetched from; empty: the HM server."
    )
    memory_sweep_ms: int = Field(
        default=2_000, ge=50, description="How often memory looks for uploads and objects that are to be discarded."
    )

    @field_validator("blob_url")
    @classmethod
    def _usable(cls, value: str) -> str:
        return location(value)

    @field_validator("hm_server_url", "ipfs_server_url")
    @classmethod
    def _hm_url(cls, value: str) -> str:
        return http_url(value) if value else value

    def allowed_hosts(self) -> frozenset[str]:
        """The hosts of `allowed_download_hosts`, in lower case."""
        hosts = (host.strip().rstrip(".").lower() for host in self.allowed_download_hosts.split(","))
        return frozenset(host for host in hosts if host)
