"""Secrets, model providers, signing identities and authorized signers."""

from __future__ import annotations

from seed.secrets.v1 import secrets_pb2 as pb

from libs.protocol import responses as out
from services.edge.api import views
from services.edge.api.call import Call, Handler
from services.edge.upstream import Peers

PROVIDER_SECONDS = 60.0
"""Deadline of a call during which secrets asks a model provider."""
PUBLISH_SECONDS = 90.0
"""Deadline of a call during which secrets publishes, once or twice, to the HM server."""


class SecretActions:
    """Handlers of the secrets area; secrets owns the data."""

    def __init__(self, peers: Peers) -> None:
        self._peer = peers.secrets
        self._secrets, self._providers = peers.secrets_stub, peers.providers_stub
        self._sign_ins = peers.sign_ins_stub
        self._identities, self._authorizations = peers.identities_stub, peers.authorizations_stub

    def handlers(self) -> dict[str, Handler]:
        """The actions served here."""
        return {
            "SetSecret": self.set_secret,
            "ListModelProviders": self.list_providers,
            "ListProviderModels": self.list_models,
            "SetModelProvider": self.set_provider,
            "DeleteModelProvider": self.delete_provider,
            "StartProviderOAuth": self.start_sign_in,
            "SubmitProviderOAuthCode": self.submit_code,
            "GetProviderOAuthStatus": self.sign_in_status,
            "CancelProviderOAuth": self.cancel_sign_in,
            "ListSigningIdentities": self.list_identities,
            "CreateSigningIdentity": self.create_identity,
            "UpdateSigningIdentity": self.update_identity,
            "ImportSigningIdentity": self.import_identity,
            "DeleteSigningIdentity": self.delete_identity,
            "RegisterSigner": self.register_signer,
        }

    async def set_secret(self, call: Call) -> out.SetSecretResponse:
        """SetSecret."""
        request = pb.SetSecretRequest(
            name=call.text("name"), value=call.binary("value"), metadata=call.cbor("metadata")
        )
        r = await call.write(self._peer, self._secrets.SetSecret, request)
        return out.SetSecretResponse(secret=views.secret(r.secret))

    async def list_providers(self, call: Call) -> out.ListModelProvidersResponse:
        """ListModelProviders."""
        request = pb.ListModelProvidersRequest(agent_id=call.optional_text("agentId"))
        r = await call.read(self._peer, self._providers.ListModelProviders, request)
        return out.ListModelProvidersResponse(providers=[views.provider(p) for p in r.providers])

    async def list_models(self, call: Call) -> out.ListProviderModelsResponse:
        """ListProviderModels."""
        request = pb.ListProviderModelsRequest(provider=call.text("provider"), agent_id=call.optional_text("agentId"))
        r = await call.write(self._peer, self._providers.ListProviderModels, request, timeout_s=PROVIDER_SECONDS)
        return out.ListProviderModelsResponse(models=[views.provider_model(m) for m in r.models])

    async def set_provider(self, call: Call) -> out.SetModelProviderResponse:
        """SetModelProvider."""
        request = pb.SetModelProviderRequest(name=call.text("name"), provider=call.cbor("provider") or b"")
        r = await call.write(self._peer, self._providers.SetModelProvider, request)
        return out.SetModelProviderResponse(provider=views.provider(r.provider))

    async def delete_provider(self, call: Call) -> out.DeleteModelProviderResponse:
        """DeleteModelProvider."""
        request = pb.DeleteModelProviderRequest(name=call.text("name"))
        r = await call.write(self._peer, self._providers.DeleteModelProvider, request)
        return out.DeleteModelProviderResponse(name=r.name)

    async def start_sign_in(self, call: Call) -> out.StartProviderOAuthResponse:
        """StartProviderOAuth."""
        request = pb.StartProviderOAuthRequest(provider_type=call.text("providerType"))
        r = await call.write(self._peer, self._sign_ins.StartProviderOAuth, request)
        return out.StartProviderOAuthResponse(login_id=r.login_id, auth_url=r.auth_url, expires_at=r.expires_at)

    async def submit_code(self, call: Call) -> out.SubmitProviderOAuthCodeResponse:
        """SubmitProviderOAuthCode."""
        request = pb.SubmitProviderOAuthCodeRequest(login_id=call.text("loginId"), code=call.text("code"))
        await call.write(self._peer, self._sign_ins.SubmitProviderOAuthCode, request)
        return out.SubmitProviderOAuthCodeResponse()

    async def sign_in_status(self, call: Call) -> out.ProviderOAuthStatusResponse:
        """GetProviderOAuthStatus."""
        request = pb.GetProviderOAuthStatusRequest(login_id=call.text("loginId"))
        r = await call.read(self._peer, self._sign_ins.GetProviderOAuthStatus, request)
        return views.sign_in(r)

    async def cancel_sign_in(self, call: Call) -> out.CancelProviderOAuthResponse:
        """CancelProviderOAuth."""
        request = pb.CancelProviderOAuthRequest(login_id=call.text("loginId"))
        r = await call.write(self._peer, self._sign_ins.CancelProviderOAuth, request)
        return out.CancelProviderOAuthResponse(login_id=r.login_id)

    async def list_identities(self, call: Call) -> out.ListSigningIdentitiesResponse:
        """ListSigningIdentities."""
        request = pb.ListSigningIdentitiesRequest(agent_id=call.optional_text("agentId"))
        r = await call.read(self._peer, self._identities.ListSigningIdentities, request)
        return out.ListSigningIdentitiesResponse(identities=[views.identity(i) for i in r.identities])

    async def create_identity(self, call: Call) -> out.CreateSigningIdentityResponse:
        """CreateSigningIdentity."""
        request = pb.CreateSigningIdentityRequest(
            label=call.optional_text("label"), client_request_id=call.optional_text("clientRequestId")
        )
        method = self._identities.CreateSigningIdentity
        r = await call.write(self._peer, method, request, timeout_s=PUBLISH_SECONDS)
        return out.CreateSigningIdentityResponse(identity=views.identity(r.identity))

    async def update_identity(self, call: Call) -> out.UpdateSigningIdentityResponse:
        """UpdateSigningIdentity."""
        request = pb.UpdateSigningIdentityRequest(name=call.text("name"), label=call.text("label"), icon=_icon(call))
        method = self._identities.UpdateSigningIdentity
        r = await call.write(self._peer, method, request, timeout_s=PUBLISH_SECONDS)
        return out.UpdateSigningIdentityResponse(identity=views.identity(r.identity))

    async def import_identity(self, call: Call) -> out.ImportSigningIdentityResponse:
        """ImportSigningIdentity."""
        request = pb.ImportSigningIdentityRequest(
            seed=call.binary("seed"),
            label=call.optional_text("label"),
            client_request_id=call.optional_text("clientRequestId"),
        )
        r = await call.write(self._peer, self._identities.ImportSigningIdentity, request)
        return out.ImportSigningIdentityResponse(identity=views.identity(r.identity))

    async def delete_identity(self, call: Call) -> out.DeleteSigningIdentityResponse:
        """DeleteSigningIdentity."""
        request = pb.DeleteSigningIdentityRequest(name=call.text("name"))
        r = await call.write(self._peer, self._identities.DeleteSigningIdentity, request)
        return out.DeleteSigningIdentityResponse(name=r.name)

    async def register_signer(self, call: Call) -> out.RegisterSignerResponse:
        """RegisterSigner."""
        request = pb.RegisterSignerRequest(capability=call.binary("capability"))
        r = await call.write(self._peer, self._authorizations.RegisterSigner, request)
        return out.RegisterSignerResponse(account_id=r.account_id, signer_id=r.signer_id)


def _icon(call: Call) -> pb.SigningIdentityIcon | None:
    icon = call.action.get("icon")
    if icon is None:
        return None
    data = icon.get("data") if isinstance(icon, dict) else None
    return pb.SigningIdentityIcon(data=data if isinstance(data, bytes) else b"")
