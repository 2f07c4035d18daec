"""SignInsService."""

from __future__ import annotations

from seed.secrets.v1 import secrets_pb2 as pb

from libs.rpc import Caller
from services.secrets.api.callers import acting
from services.secrets.domain.sign_ins import SignIns


class SignInsServicer:
    """Sign-ins of the acting account."""

    def __init__(self, sign_ins: SignIns) -> None:
        self._sign_ins = sign_ins

    async def StartProviderOAuth(
        self, request: pb.StartProviderOAuthRequest, caller: Caller
    ) -> pb.StartProviderOAuthResponse:
        """Begin a sign-in."""
        started = await self._sign_ins.start(acting(caller), request.provider_type)
        return pb.StartProviderOAuthResponse(login_id=started.id, auth_url=started.url, expires_at=started.expires_at)

    async def SubmitProviderOAuthCode(
        self, request: pb.SubmitProviderOAuthCodeRequest, caller: Caller
    ) -> pb.SubmitProviderOAuthCodeResponse:
        """Take a code."""
        await self._sign_ins.submit(acting(caller), caller.signer, request.login_id, request.code)
        return pb.SubmitProviderOAuthCodeResponse()

    async def GetProviderOAuthStatus(
        self, request: pb.GetProviderOAuthStatusRequest, caller: Caller
    ) -> pb.GetProviderOAuthStatusResponse:
        """Tell how a sign-in stands."""
        seen = await self._sign_ins.status(acting(caller), request.login_id)
        return pb.GetProviderOAuthStatusResponse(
            login_id=seen.id, status=seen.status, secret_name=seen.secret_name, error=seen.error
        )

    async def CancelProviderOAuth(
        self, request: pb.CancelProviderOAuthRequest, caller: Caller
    ) -> pb.CancelProviderOAuthResponse:
        """Give a sign-in up."""
        return pb.CancelProviderOAuthResponse(login_id=await self._sign_ins.cancel(acting(caller), request.login_id))
