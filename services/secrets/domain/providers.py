"""Model providers: the rules of a config, and what a stored record is good for (actions.md, provider rules)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from libs import wire
from libs.audit import Actor
from libs.errors import Invalid, NotFound
from libs.protocol.limits import METADATA_BYTES, URL_BYTES
from libs.protocol.models import PROVIDERS, ProviderType
from services.secrets.domain.secrets import Clock, read_object
from services.secrets.domain.subscriptions import Refused, Subscriptions
from services.secrets.domain.text import label, storable
from services.secrets.domain.vault import Vault, WrappedKey

SECRET_REFS: Final = 32
"""Most references of a record; beyond it `Too many secret refs`."""

SUBSCRIPTION = "subscription"
API_KEY = "api-key"


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A checked config as it is stored. Empty texts and None: not given."""

    type: str
    auth_mode: str
    base_url: str
    model_defaults: bytes | None
    secret_refs: dict[str, str]


@dataclass(frozen=True, slots=True)
class StoredProvider:
    """A record without its secrets. Times in Unix milliseconds."""

    id: str
    name: str
    type: str
    has_secrets: bool
    subscription: bool
    signed_in: bool
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class SealedValue:
    """A stored value with the key that opens it."""

    name: str
    sealed: bytes
    key: WrappedKey


@dataclass(frozen=True, slots=True)
class ResolvableProvider:
    """A record with the secret it uses: `names_secret` without `secret` means that the secret does not exist."""

    type: str
    subscription: bool
    base_url: str
    model_defaults: bytes
    names_secret: bool
    secret: SealedValue | None


@dataclass(frozen=True, slots=True)
class Usable:
    """All that is needed to ask a provider. `base_url` is the record's own, empty when it has none that counts.

    With a sign-in, `api_key` is its access token and `provider_account` the account at the provider it is for.
    """

    type: str
    kind: ProviderType
    auth_mode: str
    base_url: str
    api_key: str
    model_defaults: bytes
    provider_account: str

    def __repr__(self) -> str:
        return f"Usable({self.type!r})"


class ProviderStore(Protocol):
    """The rows of providers."""

    async def list(self, account: str) -> list[StoredProvider]:
        """All, newest change first."""
        ...

    async def put(self, new_id: str, by: Actor, name: str, config: ProviderConfig, now_ms: int) -> StoredProvider:
        """Insert or replace."""
        ...

    async def delete(self, by: Actor, name: str) -> bool:
        """Delete with the secrets only it references; False when there is no such provider."""
        ...

    async def resolve(self, account: str, name: str) -> ResolvableProvider | None:
        """A record with the secret it uses."""
        ...

    async def references(self, account: str, provider: str, keys: list[str]) -> tuple[str | None, dict[str, bytes]]:
        """Type of a provider, and metadata of the names that are account keys."""
        ...


class Providers:
    """The account's model providers."""

    def __init__(self, rows: ProviderStore, vault: Vault, subscriptions: Subscriptions, now: Clock) -> None:
        self._rows, self._vault, self._subscriptions, self._now = rows, vault, subscriptions, now

    async def list(self, account: str) -> list[StoredProvider]:
        """All providers, newest change first."""
        return await self._rows.list(account)

    async def set(self, by: Actor, name: str, config: bytes) -> StoredProvider:
        """Store a config (DAG-CBOR as received) under a name. Raises Invalid, in the documented order."""
        name = label(name, "Provider name")
        checked = read_config(config)
        return await self._rows.put(str(uuid.uuid4()), by, name, checked, int(self._now() * 1000))

    async def delete(self, by: Actor, name: str) -> str:
        """Delete a provider and the secrets only it referenced; returns its name. Raises Invalid, NotFound."""
        name = label(name, "Provider name")
        if not await self._rows.delete(by, name):
            raise NotFound("Model provider not found")
        return name

    async def find(self, account: str, name: str) -> ResolvableProvider:
        """A record, still sealed. Raises NotFound; Invalid when its type is none we know."""
        record = await self._rows.resolve(account, name) if storable(name) else None
        if record is None:
            raise NotFound("Model provider not found")
        if record.type not in PROVIDERS:
            raise Invalid(f"Unsupported model provider type: {record.type}")
        return record

    async def open(self, account: str, record: ResolvableProvider, refused: Refused | None = None) -> Usable:
        """A record of `account` that `find` gave, with its credentials in plaintext. `refused`: tokens not to give.

        Raises Invalid when a key, the sign-in or the base URL is missing; Unauthenticated and BadGateway for a sign-in
        that is no longer good.
        """
        kind = PROVIDERS[record.type]
        if not record.names_secret and record.subscription:
            raise Invalid(f"{record.type} subscription sign-in is not configured")
        if not record.names_secret and kind.needs_key:
            raise Invalid(f"{record.type} API key is not configured")
        if record.names_secret and record.secret is None:
            raise Invalid("Required secret is not configured")
        base_url = record.base_url if kind.own_base_url else ""
        if not base_url and kind.base_url is None:
            raise Invalid(f"Base URL is required for provider type: {record.type}")
        tokens = None
        if record.subscription and record.secret is not None:
            tokens = await self._subscriptions.credentials(account, record.type, record.secret.name, refused)
        return Usable(
            type=record.type,
            kind=kind,
            auth_mode=SUBSCRIPTION if record.subscription else API_KEY,
            base_url=base_url,
            api_key=tokens.access if tokens is not None else await self._api_key(account, record.secret),
            model_defaults=record.model_defaults,
            provider_account=tokens.account if tokens is not None else "",
        )

    async def references(
        self, account: str, provider: str, keys: list[str]
    ) -> tuple[str | None, list[str], dict[str, str]]:
        """The type of a provider (None: there is none), those of `keys` that are no stored account keys, and the
        account ids of the others as far as they are known."""
        asked = [key for key in keys if storable(key)]
        # A name that cannot be stored is asked for as the empty one, which nothing has.
        kind, found = await self._rows.references(account, provider if storable(provider) else "", asked)
        known = {name: (read_object(metadata) or {}).get("accountId") for name, metadata in found.items()}
        accounts = {name: account_id for name, account_id in known.items() if isinstance(account_id, str)}
        return kind, [key for key in keys if key not in found], accounts

    async def _api_key(self, account: str, secret: SealedValue | None) -> str:
        if secret is None:
            return ""
        value = await self._vault.unseal(account, secret.name, secret.sealed, secret.key)
        # Keys are pasted, often with the line's end; HTTP would drop these at the ends of a header anyway.
        return value.decode("utf-8", "replace").strip(" \t\r\n")


def read_config(encoded: bytes) -> ProviderConfig:
    """Check a config as received. Raises Invalid with the first rule that is broken."""
    config = read_object(encoded) if encoded else None
    if config is None:
        raise Invalid("Provider config is required")
    kind = label(config.get("type"), "Provider type")
    return ProviderConfig(
        type=kind,
        auth_mode=_auth_mode(config, kind),
        base_url=_base_url(config),
        model_defaults=_model_defaults(config),
        secret_refs=_secret_refs(config),
    )


def _auth_mode(config: dict[str, Any], kind: str) -> str:
    if "authMode" not in config:
        return ""
    mode = config["authMode"]
    if mode not in (API_KEY, SUBSCRIPTION):
        raise Invalid("Provider auth mode must be 'api-key' or 'subscription'")
    if mode == SUBSCRIPTION:
        if kind not in PROVIDERS or not PROVIDERS[kind].subscription:
            raise Invalid(f"Provider type does not support subscription auth: {kind}")
        refs = config.get("secretRefs")
        if not isinstance(refs, dict) or not refs.get("oauth"):
            raise Invalid("Subscription providers require a secretRefs.oauth credential reference")
    return mode


def _base_url(config: dict[str, Any]) -> str:
    if "baseUrl" not in config:
        return ""
    url = label(config["baseUrl"], "Provider base URL", URL_BYTES)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(c.isspace() or not c.isprintable() for c in url):
        raise Invalid("Provider base URL is invalid")
    return url


def _model_defaults(config: dict[str, Any]) -> bytes | None:
    if "modelDefaults" not in config:
        return None
    defaults = config["modelDefaults"]
    if not isinstance(defaults, dict):
        raise Invalid("Model defaults must be an object")
    encoded = wire.encode(defaults)
    if len(encoded) > METADATA_BYTES:
        raise Invalid("Model defaults are too large")
    return encoded


def _secret_refs(config: dict[str, Any]) -> dict[str, str]:
    if "secretRefs" not in config:
        return {}
    refs = config["secretRefs"]
    if not isinstance(refs, dict):
        raise Invalid("Secret refs must be an object")
    if len(refs) > SECRET_REFS:
        raise Invalid("Too many secret refs")
    return {label(key, "Secret ref key"): label(name, "Secret ref value") for key, name in refs.items()}
