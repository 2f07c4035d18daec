"""Actions on providers, secrets, sign-ins and signing identities."""

from msgspec import UNSET, UnsetType

from ..base import Action, OpenMap
from ..secrets import ModelProviderConfig, SigningIdentityIcon


class ListModelProviders(Action, kw_only=True):
    """The providers of the account, or of the owner of an agent."""

    agent_id: str | UnsetType = UNSET


class ListProviderModels(Action, kw_only=True):
    """The models a provider offers."""

    provider: str
    agent_id: str | UnsetType = UNSET


class ListSigningIdentities(Action, kw_only=True):
    """The signing identities of the account, or those granted to an agent."""

    agent_id: str | UnsetType = UNSET


class CreateSigningIdentity(Action, kw_only=True):
    """Make and publish a new signing identity."""

    label: str | UnsetType = UNSET
    client_request_id: str | UnsetType = UNSET


class ImportSigningIdentity(Action, kw_only=True):
    """Store the key of an existing account."""

    seed: bytes
    """32 bytes."""
    label: str | UnsetType = UNSET
    client_request_id: str | UnsetType = UNSET


class UpdateSigningIdentity(Action, kw_only=True):
    """Rename a signing identity, or give it an icon."""

    name: str
    label: str
    icon: SigningIdentityIcon | UnsetType = UNSET


class DeleteSigningIdentity(Action, kw_only=True):
    """Forget the key of a signing identity."""

    name: str


class SetModelProvider(Action, kw_only=True):
    """Store a provider under a name."""

    name: str
    provider: ModelProviderConfig


class DeleteModelProvider(Action, kw_only=True):
    """Delete a provider and the secrets only it used."""

    name: str


class StartProviderOAuth(Action, kw_only=True):
    """Begin a subscription sign-in."""

    provider_type: str


class SubmitProviderOAuthCode(Action, kw_only=True):
    """Hand in what the sign-in page gave."""

    login_id: str
    code: str


class GetProviderOAuthStatus(Action, kw_only=True):
    """How a sign-in stands."""

    login_id: str


class CancelProviderOAuth(Action, kw_only=True):
    """Give a sign-in up."""

    login_id: str


class SetSecret(Action, kw_only=True):
    """Store a secret under a name."""

    name: str
    value: bytes
    metadata: OpenMap | UnsetType = UNSET
