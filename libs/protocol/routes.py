"""The plain JSON routes: `/api/health` and `/api/version` (envelope.md, section 6)."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .base import Wire

CodeExecReasonCode = Literal[
    "config-disabled", "unsupported-platform", "whp-disabled", "kvm-missing", "kvm-forbidden", "runtime-error"
]
CodeExecRuntime = Literal["ts", "python", "shell"]


class WebTools(Wire, kw_only=True):
    """Which web tools have a backend."""

    search: bool
    read_browser: bool


class HealthJson(Wire, kw_only=True):
    """Answer of the health route."""

    status: Literal["ok"] = "ok"
    uptime: int | float
    """Seconds."""
    version: str
    hm_server_url: str
    ipfs_server_url: str
    web_tools: WebTools
    subscription_auth: bool
    code_exec: bool
    code_exec_reason: str | UnsetType = UNSET
    code_exec_reason_code: CodeExecReasonCode | UnsetType = UNSET
    code_exec_runtimes: list[CodeExecRuntime]
    protocol: int | UnsetType = UNSET
    min_client_protocol: int | UnsetType = UNSET


class VersionJson(Wire, kw_only=True):
    """Answer of the version route."""

    version: str
    commit: str
    branch: str
    date: str
    protocol: int
    min_client_protocol: int
