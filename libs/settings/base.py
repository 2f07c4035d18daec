"""The settings base and its loader."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from libs.settings.catalog import KNOWN

PREFIX = "SEED_AGENTS_"

S = TypeVar("S", bound="Settings")


class SettingsError(Exception):
    """A variable is unknown or has a value that cannot be used. The message says which and what to do."""


class Settings(BaseSettings):
    """What every process has in common."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    log_level: str = Field(default="info", description="Least level that is logged: debug, info, warning or error.")
    metrics_port: int = Field(default=0, ge=0, le=65535, description="Prometheus listener; 0 is off.")
    metrics_host: str = Field(default="127.0.0.1", description="Address of the Prometheus listener.")
    otlp_endpoint: str = Field(default="", description="OTLP gRPC endpoint for traces; empty is off.")

    nats_url: str = Field(default="nats://127.0.0.1:4222", description="NATS server.")
    redis_url: str = Field(default="redis://127.0.0.1:6379/0", description="Valkey or Redis server.")
    internal_key: str = Field(
        default="", min_length=32, description="HS256 key of internal tokens, at least 32 characters."
    )

    grpc_host: str = Field(default="127.0.0.1", description="Address of the gRPC listener.")
    grpc_port: int = Field(default=0, ge=0, le=65535, description="Port of the gRPC listener; 0 is any free one.")
    sessions_addr: str = Field(default="127.0.0.1:7101", description="host:port of sessions.")
    secrets_addr: str = Field(default="127.0.0.1:7102", description="host:port of secrets.")
    runs_addr: str = Field(default="127.0.0.1:7103", description="host:port of runs (api role).")

    database_url: str = Field(default="", description="PostgreSQL URL of the service's own role.")
    database_pool: int = Field(default=8, ge=1, le=200, description="Most database connections of this process.")


def load(settings: type[S], environ: Mapping[str, str] | None = None) -> S:
    """Read `settings` from the environment.

    Raises SettingsError when a SEED_AGENTS_* variable is unknown to all services or has an unusable value.
    """
    env = os.environ if environ is None else environ
    known = KNOWN | {PREFIX + name.upper() for name in settings.model_fields}
    for name in sorted(env):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise SettingsError(f"Unknown setting {name}. Did you mean {near[0]}?")
    try:
        if environ is None:
            return settings()
        values = {f: env[PREFIX + f.upper()] for f in settings.model_fields if PREFIX + f.upper() in env}
        return settings(**values)  # pyright: ignore[reportArgumentType]
    except ValidationError as e:
        lines = [f"{PREFIX}{'_'.join(map(str, x['loc'])).upper()}: {x['msg']}" for x in e.errors()]
        raise SettingsError("Unusable settings:\n  " + "\n  ".join(lines)) from None
