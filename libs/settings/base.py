"""The settings base and its loader."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from libs.settings.catalog import KNOWN, PREFIX

S = TypeVar("S", bound="Settings")


class SettingsError(Exception):
    """A variable is unknown or has a value that cannot be used. The message says which and what to do."""


def http_url(value: str) -> str:
    """A base URL without its last slashes. Raises ValueError for anything but http and https."""
    if urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname:
        raise ValueError("must be an http or https URL")
    return value.rstrip("/")


class Settings(BaseSettings):
    """What every process has in common."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True)

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is logged: debug, info, warning or error."
    )
    metrics_port: int = Field(default=0, ge=0, le=65535, description="Prometheus listener; 0 is off.")
    metrics_host: str = Field(default="127.0.0.1", description="Address of the Prometheus listener.")
    otlp_endpoint: str = Field(default="", description="OTLP gRPC endpoint for traces; empty is off.")

    nats_url: str = Field(default="nats://127.0.0.1:4222", repr=False, description="NATS server.")
    redis_url: str = Field(default="redis://127.0.0.1:6379/0", repr=False, description="Valkey or Redis server.")
    internal_key: str = Field(
        default="", min_length=32, repr=False, description="HS256 key of internal tokens, at least 32 characters."
    )

    grpc_host: str = Field(default="127.0.0.1", description="Address of the gRPC listener.")
    grpc_port: int = Field(default=0, ge=0, le=65535, description="Port of the gRPC listener; 0 is any free one.")
    sessions_addr: str = Field(default="127.0.0.1:7101", description="host:port of sessions.")
    secrets_addr: str = Field(default="127.0.0.1:7102", description="host:port of secrets.")
    runs_addr: str = Field(default="127.0.0.1:7103", description="host:port of runs (api role).")
    memory_addr: str = Field(default="127.0.0.1:7104", description="host:port of memory.")
    triggers_addr: str = Field(default="127.0.0.1:7105", description="host:port of triggers (api role).")

    database_url: str = Field(default="", repr=False, description="PostgreSQL URL of the service's own role.")
    blob_url: str = Field(
        default="data/blobs", repr=False, description="Object store: a directory, or s3://bucket/prefix (AWS_* apply)."
    )
    database_pool: int = Field(default=8, ge=1, le=200, description="Most database connections of this process.")

    @field_validator("log_level", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what load() found: one environment, spelled exactly."""
        return (init_settings,)


def load(settings: type[S], environ: Mapping[str, str] | None = None) -> S:
    """Read `settings` from `environ` (default: this process's environment).

    Raises SettingsError when a SEED_AGENTS_* variable is unknown to all services or has an unusable value; its message
    never holds a value.
    """
    env = os.environ if environ is None else environ
    fields = {PREFIX + field.upper(): field for field in settings.model_fields}
    known = KNOWN | fields.keys()
    for name in sorted(env):
        if name.startswith(PREFIX) and name not in known:
            raise SettingsError(f"Unknown setting {name}. Did you mean {_nearest(name, known)}?")
    try:
        return settings.model_validate({field: env[name] for name, field in fields.items() if name in env})
    except ValidationError as e:
        # A rule between settings has no place of its own: its text names them.
        lines = [": ".join([*(PREFIX + str(part).upper() for part in x["loc"][:1]), x["msg"]]) for x in e.errors()]
        raise SettingsError("Unusable settings:\n  " + "\n  ".join(lines)) from None


def _nearest(name: str, known: frozenset[str] | set[str]) -> str:
    tail = name.removeprefix(PREFIX)
    return PREFIX + difflib.get_close_matches(tail, sorted(k.removeprefix(PREFIX) for k in known), n=1, cutoff=0.0)[0]
