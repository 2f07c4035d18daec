"""SecretsService."""

from __future__ import annotations

from seed.secrets.v1 import secrets_pb2 as pb

from libs.rpc import Caller
from services.secrets.api.callers import actor
from services.secrets.domain.secrets import Secrets


class SecretsServicer:
    """Secret values of the acting account."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def SetSecret(self, request: pb.SetSecretRequest, caller: Caller) -> pb.SetSecretResponse:
        """Store a value under a name."""
        stored = await self._secrets.set(
            actor(caller),
            request.name,
            request.value if request.HasField("value") else None,
            request.metadata if request.HasField("metadata") else None,
        )
        return pb.SetSecretResponse(
            secret=pb.Secret(
                id=stored.id,
                name=stored.name,
                metadata=stored.metadata or b"",
                created_at=stored.created_at,
                updated_at=stored.updated_at,
            )
        )
