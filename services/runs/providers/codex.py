"""The way to ChatGPT's backend: authorized with a subscription's sign-in, which is renewed when it is refused."""

from __future__ import annotations

from typing import Final

import httpx2

from services.runs.providers.contract import ProviderError, SignIn
from services.runs.providers.errors import redacted

# Which program asks; the sign-in page was told the same.
_ORIGINATOR: Final = "pi"
_REFUSED: Final = 401
_MAX_TOKENS: Final = 3


class CodexTransport(httpx2.AsyncBaseTransport):
    """Sends each request with the token in use; one that is refused is sent once more with a renewed token.

    Raises what the inner transport and `SignIn.renew` raise. The inner transport is not closed with this one.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, sign_in: SignIn) -> None:
        self._inner, self._sign_in = inner, sign_in

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; see the class."""
        await request.aread()
        for tried in range(1, _MAX_TOKENS + 1):
            token = self._sign_in.token
            request.headers.update(
                {
                    "authorization": f"Bearer {token}",
                    "chatgpt-account-id": self._sign_in.account,
                    "openai-beta": "responses=experimental",
                    "originator": _ORIGINATOR,
                }
            )
            try:
                return await self._inner.handle_async_request(request)
            except ProviderError as error:
                if error.status != _REFUSED or tried == _MAX_TOKENS:
                    raise redacted(error, token) from error
            await self._sign_in.renew(token, last=tried > 1)
        raise AssertionError("the last try returns or raises")
