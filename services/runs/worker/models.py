"""The model of a turn with its credentials, as secrets gives them out."""

from __future__ import annotations

import hashlib
from typing import Any

from seed.secrets.v1 import secrets_pb2, secrets_pb2_grpc
from seed.sessions.v1 import turns_pb2

from libs import wire
from libs.errors import BadGateway, Invalid, NotFound, Unauthenticated
from libs.rpc import Peer
from services.runs.providers.contract import ConfigError, ModelConfig, ProviderError
from services.runs.worker.log import PATIENCE_S

_SUBSCRIPTION = "subscription"


class ModelResolver:
    """Finds the model a turn talks to, with its provider's credentials."""

    def __init__(self, secrets: Peer) -> None:
        self._peer, self._stub = secrets, secrets.stub(secrets_pb2_grpc.ProvidersServiceStub)

    async def resolve(self, begin: turns_pb2.BeginTurnResponse) -> ModelConfig:
        """The effective model; a session's override of a provider that is gone is ignored.

        Raises ConfigError for what the account must set right: no provider, no secret (400), a sign-in that is no
        longer good (401); ProviderError when a sign-in cannot be kept fresh now.
        """
        owner = begin.session.account
        try:
            return await self._one(owner, begin.model_provider, begin.model, begin.reasoning_level)
        except NotFound as e:
            if not begin.fallback_provider:
                raise ConfigError(e.message) from None
        try:
            return await self._one(owner, begin.fallback_provider, begin.fallback_model, begin.fallback_reasoning_level)
        except NotFound as e:
            raise ConfigError(e.message) from None

    async def _one(self, owner: str, provider: str, model: str, level: str) -> ModelConfig:
        found = await self.ask(owner, provider)
        signed_in = found.auth_mode == _SUBSCRIPTION
        defaults: Any = wire.decode(found.model_defaults) if found.model_defaults else {}
        return ModelConfig(
            provider_name=provider,
            provider_type=found.type,
            model=model,
            base_url=found.base_url,
            api_key="" if signed_in else found.api_key,
            reasoning_level=level or None,
            model_defaults=defaults,
            sign_in=Subscription(self, owner, provider, found) if signed_in else None,
        )

    async def ask(self, owner: str, provider: str, **refused: Any) -> secrets_pb2.ResolveModelProviderResponse:
        """A provider with its credentials. Raises NotFound, ConfigError and ProviderError."""
        request = secrets_pb2.ResolveModelProviderRequest(account=owner, provider=provider, **refused)
        try:
            return await self._peer.call(
                self._stub.ResolveModelProvider, request, account=owner, timeout_s=PATIENCE_S, retry=True
            )
        except (Invalid, Unauthenticated) as e:
            raise ConfigError(e.message, status=e.status) from None
        except BadGateway as e:
            raise ProviderError(e.message, retryable=True, status=e.status) from None


class Subscription:
    """The sign-in of one provider. All turns that were given the same token share it, and renew it together."""

    def __init__(
        self, models: ModelResolver, owner: str, provider: str, found: secrets_pb2.ResolveModelProviderResponse
    ) -> None:
        self._models, self._owner, self._provider = models, owner, provider
        self.token, self.account = found.api_key, found.provider_account

    async def renew(self, refused: str, *, last: bool) -> None:
        """Put another token in the place of a refused one. Raises ConfigError and ProviderError."""
        if self.token != refused:
            return  # renewed while the refused request was under way
        digest = hashlib.sha256(refused.encode()).digest()
        try:
            found = await self._models.ask(self._owner, self._provider, refused_token=digest, last_token=last)
        except NotFound as e:
            raise ConfigError(e.message) from None
        if found.auth_mode != _SUBSCRIPTION:
            raise ConfigError("The model provider was changed meanwhile, send the message again")
        self.token, self.account = found.api_key, found.provider_account
