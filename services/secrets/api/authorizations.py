"""AuthorizationsService."""

from __future__ import annotations

from seed.secrets.v1 import secrets_pb2 as pb

from libs.rpc import Caller
from services.secrets.api.callers import actor, only
from services.secrets.domain.authorizations import Authorizations


class AuthorizationsServicer:
    """Which keys may sign for which accounts."""

    def __init__(self, authorizations: Authorizations) -> None:
        self._authorizations = authorizations

    async def RegisterSigner(self, request: pb.RegisterSignerRequest, caller: Caller) -> pb.RegisterSignerResponse:
        """Store what a capability grants to the key that signed the request."""
        capability = request.capability if request.HasField("capability") else None
        granted = await self._authorizations.register(actor(caller), capability)
        return pb.RegisterSignerResponse(account_id=granted.account, signer_id=granted.signer)

    async def CheckSigner(self, request: pb.CheckSignerRequest, caller: Caller) -> pb.CheckSignerResponse:
        """Tell the edge whether a signer may act for an account."""
        only(caller, "edge")
        authorized = await self._authorizations.may_sign(request.account_id, request.signer_id)
        return pb.CheckSignerResponse(authorized=authorized)
