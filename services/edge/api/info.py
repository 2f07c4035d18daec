"""The plain JSON routes: health and version."""

from __future__ import annotations

import time
from importlib import metadata

import msgspec

from libs.protocol import MIN_CLIENT_PROTOCOL, PROTOCOL_VERSION
from libs.protocol.routes import HealthJson, VersionJson, WebTools
from services.edge.settings import EdgeSettings


class Info:
    """What the server says about itself."""

    def __init__(self, settings: EdgeSettings) -> None:
        self._settings = settings
        self._started = time.monotonic()
        try:
            self._version = metadata.version("seed-agents")
        except metadata.PackageNotFoundError:
            self._version = "dev"

    def health(self) -> bytes:
        """Body of the health route."""
        s = self._settings
        return msgspec.json.encode(
            HealthJson(
                uptime=round(time.monotonic() - self._started, 3),
                version=self._version,
                hm_server_url=s.hm_server_url,
                ipfs_server_url=s.ipfs_server_url or s.hm_server_url,
                web_tools=WebTools(search=bool(s.searxng_url), read_browser=False),
                subscription_auth=s.subscription_auth,
                code_exec=False,
                code_exec_reason="Code execution is disabled by configuration",
                code_exec_reason_code="config-disabled",
                code_exec_runtimes=[],
                protocol=PROTOCOL_VERSION,
                min_client_protocol=MIN_CLIENT_PROTOCOL,
            )
        )

    def version(self) -> bytes:
        """Body of the version route."""
        s = self._settings
        return msgspec.json.encode(
            VersionJson(
                version=self._version,
                commit=s.commit,
                branch=s.branch,
                date=s.build_date,
                protocol=PROTOCOL_VERSION,
                min_client_protocol=MIN_CLIENT_PROTOCOL,
            )
        )
