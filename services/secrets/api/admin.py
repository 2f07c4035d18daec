"""SecretsAdminService: for operators only."""

from __future__ import annotations

from seed.secrets.v1 import admin_pb2 as pb

from libs.audit import Actor
from libs.rpc import Caller
from services.secrets.api.callers import OPS, only
from services.secrets.domain.authorizations import Authorizations
from services.secrets.domain.rotation import Rotation

_BATCH = 200
_PAGE = 100
_MOST = 1000


class AdminServicer:
    """Rotation and authorizations."""

    def __init__(self, rotation: Rotation, authorizations: Authorizations) -> None:
        self._rotation, self._authorizations = rotation, authorizations

    async def RewrapDataKeys(self, request: pb.RewrapDataKeysRequest, caller: Caller) -> pb.RewrapDataKeysResponse:
        """Re-wrap one batch with the primary key."""
        most = _size(request.batch, _BATCH)
        done = await self._rotation.rewrap(_operator(caller), request.primary, request.page_token, most)
        return pb.RewrapDataKeysResponse(
            primary=done.primary,
            rewrapped=done.batch.rewrapped,
            wrapped_by=done.wrapped_by,
            failed=done.batch.failed,
            next_page_token=done.batch.after,
        )

    async def ListAuthorizations(
        self, request: pb.ListAuthorizationsRequest, caller: Caller
    ) -> pb.ListAuthorizationsResponse:
        """A page of authorizations."""
        _operator(caller)
        most = _size(request.page_size, _PAGE)
        account, _, signer = request.page_token.partition("/")
        rows = await self._authorizations.page(request.account, (account, signer), most + 1)
        shown = rows[:most]
        return pb.ListAuthorizationsResponse(
            authorizations=[
                pb.Authorization(
                    account=row.account,
                    signer=row.signer,
                    role=row.role,
                    created_at=row.created_at,
                    updated_at=row.updated_at,
                )
                for row in shown
            ],
            next_page_token=f"{shown[-1].account}/{shown[-1].signer}" if len(rows) > most else "",
        )

    async def RevokeAuthorization(
        self, request: pb.RevokeAuthorizationRequest, caller: Caller
    ) -> pb.RevokeAuthorizationResponse:
        """Take a key's right away."""
        await self._authorizations.revoke(_operator(caller), request.account, request.signer)
        return pb.RevokeAuthorizationResponse()


def _operator(caller: Caller) -> Actor:
    only(caller, OPS)
    return Actor(caller.account, caller.signer, OPS)


def _size(asked: int, default: int) -> int:
    return min(asked, _MOST) if asked > 0 else default
