"""ProvidersService."""

from __future__ import annotations

from seed.secrets.v1 import secrets_pb2 as pb

from libs.rpc import Caller
from services.secrets.api.access import AgentAccess
from services.secrets.api.callers import acting, actor, only
from services.secrets.domain.models import ModelLists
from services.secrets.domain.providers import SUBSCRIPTION, Providers, StoredProvider
from services.secrets.domain.subscriptions import Refused


class ProvidersServicer:
    """Model providers: the acting account's, or with an agent the owner's."""

    def __init__(self, providers: Providers, models: ModelLists, access: AgentAccess) -> None:
        self._providers, self._models, self._access = providers, models, access

    async def ListModelProviders(
        self, request: pb.ListModelProvidersRequest, caller: Caller
    ) -> pb.ListModelProvidersResponse:
        """List providers redacted."""
        account = await self._whose(request, caller)
        stored = await self._providers.list(account)
        return pb.ListModelProvidersResponse(providers=[_message(provider) for provider in stored])

    async def ListProviderModels(
        self, request: pb.ListProviderModelsRequest, caller: Caller
    ) -> pb.ListProviderModelsResponse:
        """Ask a provider for its models."""
        account = await self._whose(request, caller)
        models = await self._models.list(account, request.provider)
        return pb.ListProviderModelsResponse(models=[pb.ProviderModel(id=m.id, name=m.name) for m in models])

    async def SetModelProvider(
        self, request: pb.SetModelProviderRequest, caller: Caller
    ) -> pb.SetModelProviderResponse:
        """Store a provider under a name."""
        stored = await self._providers.set(actor(caller), request.name, request.provider)
        return pb.SetModelProviderResponse(provider=_message(stored))

    async def DeleteModelProvider(
        self, request: pb.DeleteModelProviderRequest, caller: Caller
    ) -> pb.DeleteModelProviderResponse:
        """Delete a provider and the secrets only it referenced."""
        return pb.DeleteModelProviderResponse(name=await self._providers.delete(actor(caller), request.name))

    async def CheckReferences(self, request: pb.CheckReferencesRequest, caller: Caller) -> pb.CheckReferencesResponse:
        """Tell sessions what a definition names and the account has."""
        only(caller, "sessions")
        kind, missing, accounts = await self._providers.references(
            request.account, request.provider, list(request.signing_keys)
        )
        return pb.CheckReferencesResponse(provider_type=kind, missing_signing_keys=missing, signing_accounts=accounts)

    async def ResolveModelProvider(
        self, request: pb.ResolveModelProviderRequest, caller: Caller
    ) -> pb.ResolveModelProviderResponse:
        """Hand a worker a provider with its credentials."""
        only(caller, "runs-worker")
        record = await self._providers.find(request.account, request.provider)
        refused = Refused(request.refused_token, request.last_token) if request.refused_token else None
        usable = await self._providers.open(request.account, record, refused)
        return pb.ResolveModelProviderResponse(
            type=usable.type,
            base_url=usable.base_url,
            api_key=usable.api_key,
            model_defaults=usable.model_defaults,
            auth_mode=usable.auth_mode,
            provider_account=usable.provider_account,
        )

    async def _whose(self, request: pb.ListModelProvidersRequest | pb.ListProviderModelsRequest, caller: Caller) -> str:
        account = acting(caller)
        if request.HasField("agent_id"):
            return (await self._access.reader(caller, request.agent_id)).owner
        return account


def _message(stored: StoredProvider) -> pb.ModelProvider:
    status = ("ok" if stored.signed_in else "needs-login") if stored.subscription else ""
    return pb.ModelProvider(
        id=stored.id,
        name=stored.name,
        type=stored.type,
        has_secrets=stored.has_secrets,
        auth_mode=SUBSCRIPTION if stored.subscription else "",
        auth_status=status,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
    )
