"""What can be configured of secrets: `SEED_AGENTS_<NAME>` variables."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from libs.settings import Settings, SettingsError, http_url
from services.secrets.domain.oauth import OPENAI, OAuthClient

_COMMAND_SECONDS = 30


class SecretsSettings(Settings):
    """Settings of the secrets service. Exactly one of the three key ring settings is given."""

    secrets_keyring: str = Field(
        default="", repr=False, description='Key ring: {"primary": id, "keys": {id: base64 of 32 bytes}}.'
    )
    secrets_keyring_file: str = Field(default="", description="File that holds the key ring.")
    secrets_keyring_command: str = Field(
        default="",
        description="Command that prints the key ring, run without a shell (a KMS client); run again every minute.",
    )
    data_key_cache: int = Field(default=4096, ge=1, description="Accounts whose unwrapped data key is kept in memory.")
    allow_private_providers: bool = Field(
        default=False, description="Whether custom and ollama providers may be on private or loopback addresses."
    )
    allowed_provider_hosts: str = Field(
        default="", description="Comma-separated hosts of custom and ollama providers that are allowed all the same."
    )
    provider_vendor_urls: str = Field(
        default="", description="JSON object of provider type to base URL, in place of the vendors' own."
    )

    hm_server_url: str = Field(
        default="https://hyper.media", description="Hypermedia server that accounts made here are published to."
    )

    subscription_auth: bool = Field(default=False, description="Whether sign-in to provider subscriptions is offered.")
    oauth_authorize_url: str = Field(
        default="https://auth.openai.com/oauth/authorize", description="Page on which users sign in to ChatGPT."
    )
    oauth_token_url: str = Field(
        default="https://auth.openai.com/oauth/token", description="Where codes and refresh tokens are exchanged."
    )
    oauth_client_id: str = Field(
        default="app_EMoamEEZ73f0CkXaXp7hrann", description="Public OAuth client that the sign-in is for."
    )

    @field_validator("hm_server_url")
    @classmethod
    def _hm_url(cls, value: str) -> str:
        return http_url(value)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        given = [self.secrets_keyring, self.secrets_keyring_file, self.secrets_keyring_command]
        if sum(bool(source) for source in given) != 1:
            raise ValueError("set exactly one of secrets_keyring_file, secrets_keyring and secrets_keyring_command")
        self.vendor_urls()
        for url in (self.oauth_authorize_url, self.oauth_token_url):
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError("oauth_authorize_url and oauth_token_url must be http or https URLs")
        return self

    def oauth_clients(self) -> dict[str, OAuthClient]:
        """The sign-ins there are, by provider type."""
        chatgpt = OAuthClient(
            client_id=self.oauth_client_id,
            authorize_url=self.oauth_authorize_url,
            token_url=self.oauth_token_url,
            redirect_uri="http://localhost:1455/auth/callback",
            scope="openid profile email offline_access",
            extra={"id_token_add_organizations": "true", "codex_cli_simplified_flow": "true", "originator": "pi"},
        )
        return {OPENAI: chatgpt}

    def allowed_hosts(self) -> frozenset[str]:
        """The hosts of `allowed_provider_hosts`, in lower case."""
        hosts = (host.strip().rstrip(".").lower() for host in self.allowed_provider_hosts.split(","))
        return frozenset(host for host in hosts if host)

    def vendor_urls(self) -> dict[str, str]:
        """Base URL by provider type. Raises ValueError when `provider_vendor_urls` is not such an object."""
        if not self.provider_vendor_urls:
            return {}
        try:
            urls = json.loads(self.provider_vendor_urls)
        except ValueError:
            raise ValueError("provider_vendor_urls is not JSON") from None
        if not isinstance(urls, dict) or not all(isinstance(url, str) for url in urls.values()):
            raise ValueError("provider_vendor_urls must be an object of texts")
        return urls

    def keyring_text(self) -> str:
        """The key ring's JSON from wherever it is. Blocks. Raises SettingsError, which never holds what was read."""
        if self.secrets_keyring:
            return self.secrets_keyring
        if self.secrets_keyring_file:
            try:
                return Path(self.secrets_keyring_file).read_text("utf-8")
            except (OSError, ValueError) as e:
                raise SettingsError(f"SEED_AGENTS_SECRETS_KEYRING_FILE cannot be read: {type(e).__name__}") from None
        try:
            ran = subprocess.run(
                shlex.split(self.secrets_keyring_command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=_COMMAND_SECONDS,
                check=True,
            )
            return ran.stdout.decode("utf-8")
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            raise SettingsError(f"SEED_AGENTS_SECRETS_KEYRING_COMMAND failed: {type(e).__name__}") from None
