"""IdentitiesService."""

from __future__ import annotations

from seed.secrets.v1 import secrets_pb2 as pb

from libs.rpc import Caller
from services.secrets.api.access import AgentAccess
from services.secrets.api.callers import acting, actor
from services.secrets.domain.identities import Identities, Identity


class IdentitiesServicer:
    """Signing identities: the acting account's, or with an agent the owner's."""

    def __init__(self, identities: Identities, access: AgentAccess) -> None:
        self._identities, self._access = identities, access

    async def ListSigningIdentities(
        self, request: pb.ListSigningIdentitiesRequest, caller: Caller
    ) -> pb.ListSigningIdentitiesResponse:
        """List identities; who does not own the agent sees only those granted to it."""
        account, granted = acting(caller), None
        if request.HasField("agent_id"):
            access = await self._access.reader(caller, request.agent_id)
            account = access.owner
            if not access.is_owner:
                granted = await self._access.granted_signing_keys(caller, request.agent_id)
        identities = await self._identities.list(account, granted)
        return pb.ListSigningIdentitiesResponse(identities=[message(identity) for identity in identities])

    async def ImportSigningIdentity(
        self, request: pb.ImportSigningIdentityRequest, caller: Caller
    ) -> pb.ImportSigningIdentityResponse:
        """Store a key that the client brings."""
        identity = await self._identities.import_key(
            actor(caller),
            request.seed if request.HasField("seed") else None,
            request.label if request.HasField("label") else None,
            request.client_request_id if request.HasField("client_request_id") else None,
        )
        return pb.ImportSigningIdentityResponse(identity=message(identity))

    async def CreateSigningIdentity(
        self, request: pb.CreateSigningIdentityRequest, caller: Caller
    ) -> pb.CreateSigningIdentityResponse:
        """Make and publish an account."""
        identity = await self._identities.create(
            actor(caller),
            request.label if request.HasField("label") else None,
            request.client_request_id if request.HasField("client_request_id") else None,
        )
        return pb.CreateSigningIdentityResponse(identity=message(identity))

    async def UpdateSigningIdentity(
        self, request: pb.UpdateSigningIdentityRequest, caller: Caller
    ) -> pb.UpdateSigningIdentityResponse:
        """Publish and keep a new label, and perhaps an icon."""
        icon = request.icon.data if request.HasField("icon") else None
        identity = await self._identities.update(actor(caller), request.name, request.label, icon)
        return pb.UpdateSigningIdentityResponse(identity=message(identity))

    async def DeleteSigningIdentity(
        self, request: pb.DeleteSigningIdentityRequest, caller: Caller
    ) -> pb.DeleteSigningIdentityResponse:
        """Delete an identity."""
        return pb.DeleteSigningIdentityResponse(name=await self._identities.delete(actor(caller), request.name))


def message(identity: Identity) -> pb.SigningIdentity:
    """An identity as a message."""
    return pb.SigningIdentity(
        id=identity.id,
        name=identity.name,
        account_id=identity.account_id,
        label=identity.label,
        icon=identity.icon,
        server_url=identity.server_url,
        created_at=identity.created_at,
        updated_at=identity.updated_at,
    )


def to_bytes(identity: Identity) -> bytes:
    """An identity as it is kept for a repeated request."""
    return message(identity).SerializeToString()


def from_bytes(kept: bytes) -> Identity:
    """What `to_bytes` kept."""
    m = pb.SigningIdentity.FromString(kept)
    return Identity(m.id, m.name, m.account_id, m.label, m.icon, m.server_url, m.created_at, m.updated_at)
