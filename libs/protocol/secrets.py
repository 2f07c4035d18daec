"""Model providers, secrets and signing identities. Values never leave: these are the redacted forms."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .base import OpenMap, Wire

AuthMode = Literal["api-key", "subscription"]


class ModelProviderConfig(Wire, kw_only=True):
    """How to reach a model provider. The type is not checked when it is stored."""

    type: str
    model_defaults: OpenMap | UnsetType = UNSET
    secret_refs: dict[str, str] | UnsetType = UNSET
    """Secret names; the runtime reads `apiKey` and `oauth`."""
    base_url: str | UnsetType = UNSET
    auth_mode: AuthMode | UnsetType = UNSET


class RedactedModelProvider(Wire, kw_only=True):
    """A stored provider without its secrets."""

    id: str
    name: str
    type: str
    has_secrets: bool
    auth_mode: AuthMode | UnsetType = UNSET
    """Only for subscription providers, as is `auth_status`."""
    auth_status: Literal["ok", "needs-login"] | UnsetType = UNSET
    created_at: int
    updated_at: int


class ProviderModelInfo(Wire, kw_only=True):
    """A model a provider offers."""

    id: str
    name: str


class RedactedSecret(Wire, kw_only=True):
    """A stored secret without its value."""

    id: str
    name: str
    metadata: OpenMap | UnsetType = UNSET
    has_value: bool = True
    created_at: int
    updated_at: int


class SigningIdentity(Wire, kw_only=True):
    """A Hypermedia account whose key the server holds."""

    id: str
    name: str
    """Name of the secret: `hm-account-` and the first 16 characters of the account id."""
    account_id: str | UnsetType = UNSET
    label: str | UnsetType = UNSET
    icon: str | UnsetType = UNSET
    """`ipfs://<cid>`."""
    server_url: str | UnsetType = UNSET
    dev: bool | UnsetType = UNSET
    created_at: int
    updated_at: int


class SigningIdentityIcon(Wire, kw_only=True):
    """A new icon for an identity."""

    data: bytes
    mime_type: str | UnsetType = UNSET
    file_name: str | UnsetType = UNSET
