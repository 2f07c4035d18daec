"""Answers about providers, secrets, sign-ins and signing identities."""

from typing import Literal

from msgspec import UNSET, UnsetType

from ..base import Response
from ..secrets import ProviderModelInfo, RedactedModelProvider, RedactedSecret, SigningIdentity


class ListModelProvidersResponse(Response, kw_only=True):
    """Answer to ListModelProviders."""

    providers: list[RedactedModelProvider]


class ListProviderModelsResponse(Response, kw_only=True):
    """Answer to ListProviderModels."""

    models: list[ProviderModelInfo]


class ListSigningIdentitiesResponse(Response, kw_only=True):
    """Answer to ListSigningIdentities."""

    identities: list[SigningIdentity]


class CreateSigningIdentityResponse(Response, kw_only=True):
    """Answer to CreateSigningIdentity."""

    identity: SigningIdentity


class ImportSigningIdentityResponse(Response, kw_only=True):
    """Answer to ImportSigningIdentity."""

    identity: SigningIdentity


class UpdateSigningIdentityResponse(Response, kw_only=True):
    """Answer to UpdateSigningIdentity."""

    identity: SigningIdentity


class DeleteSigningIdentityResponse(Response, kw_only=True):
    """Answer to DeleteSigningIdentity."""

    name: str


class SetModelProviderResponse(Response, kw_only=True):
    """Answer to SetModelProvider."""

    provider: RedactedModelProvider


class DeleteModelProviderResponse(Response, kw_only=True):
    """Answer to DeleteModelProvider."""

    name: str


class StartProviderOAuthResponse(Response, kw_only=True):
    """Answer to StartProviderOAuth."""

    login_id: str
    auth_url: str
    expires_at: int


class SubmitProviderOAuthCodeResponse(Response, kw_only=True):
    """Answer to SubmitProviderOAuthCode."""


class ProviderOAuthStatusResponse(Response, kw_only=True):
    """Answer to GetProviderOAuthStatus."""

    login_id: str
    status: Literal["pending", "completed", "failed"]
    secret_name: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class CancelProviderOAuthResponse(Response, kw_only=True):
    """Answer to CancelProviderOAuth."""

    login_id: str


class SetSecretResponse(Response, kw_only=True):
    """Answer to SetSecret."""

    secret: RedactedSecret
