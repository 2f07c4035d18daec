"""Where a provider is reached: the provider table, base URLs, and what a configuration must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import httpx2

from libs.protocol import models
from services.runs.providers.contract import ConfigError, ModelConfig

WireApi = models.WireApi | Literal["codex"]
"""The formats of the provider table, and the one of ChatGPT's backend, which subscriptions use."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A usable provider: its wire format, its base URL without a trailing slash, and whether a
    user may have chosen that URL, so that the policy for such addresses applies."""

    wire_api: WireApi
    base_url: str
    chosen_by_user: bool


def endpoint_of(config: ModelConfig, vendor_urls: Mapping[str, str]) -> Endpoint:
    """The endpoint of a configuration; `vendor_urls` replaces the default base URL of a type.

    Raises `ConfigError`: unknown type, no key where one is needed, no base URL or one that is not http(s).
    """
    kind = config.provider_type
    provider = models.PROVIDERS.get(kind)
    if provider is None:
        raise ConfigError(f"Unsupported model provider type: {kind}")
    if config.sign_in is not None:
        # Such a token is good for this backend alone, so no other URL, of whomever, may see it.
        base_url = _cleaned(vendor_urls.get(models.CHATGPT, "") or models.CHATGPT_URL)
        _check(base_url)
        return Endpoint("codex", base_url, chosen_by_user=False)
    if provider.needs_key and not config.api_key:
        raise ConfigError(f"{kind} API key is not configured")
    stored = _cleaned(config.base_url) if provider.own_base_url else ""
    base_url = stored or _cleaned(vendor_urls.get(kind, "") or provider.base_url or "")
    if not base_url:
        raise ConfigError(f"Base URL is required for provider type: {kind}")
    _check(base_url)
    by_operator = not stored and kind in vendor_urls
    return Endpoint(provider.wire_api, base_url, chosen_by_user=provider.own_base_url and not by_operator)


def hosts_of(vendor_urls: Mapping[str, str]) -> frozenset[str]:
    """The host names of operator-set URLs, which may point anywhere."""
    return frozenset(httpx2.URL(_cleaned(url)).host.lower() for url in vendor_urls.values())


def _cleaned(url: str) -> str:
    return url.strip().rstrip("/")


def _check(base_url: str) -> None:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise ConfigError("Provider base URL is invalid") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError("Provider base URL is invalid")
