"""Internal tokens: who calls (service), for whom (account and signer), until when, and for which service."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import jwt

from libs.errors import Unauthenticated
from libs.rpc.errors import INTERNAL_TOKEN

TOKEN_SECONDS = 120
_CACHE = 8192


@dataclass(frozen=True, slots=True)
class Caller:
    """Who an internal call is made for.

    `service` is the calling process's identity (edge, sessions, runs-api, runs-worker, ops), `account` the acting
    account id and `signer` the key that signed; both are empty when a service acts for itself.
    """

    service: str
    account: str = ""
    signer: str = ""


ANYBODY = ("", "")
"""(account, signer) of a call that a service makes for itself."""


class TokenSigner:
    """Makes tokens for one calling service; equal tokens are reused until shortly before they end."""

    def __init__(self, service: str, key: str, now: Callable[[], float] = time.time) -> None:
        self._service, self._key, self._now = service, key, now
        self._cache: OrderedDict[tuple[str, str, str], tuple[float, str]] = OrderedDict()

    @property
    def service(self) -> str:
        """Identity the tokens carry."""
        return self._service

    def token(self, audience: str, account: str = "", signer: str = "") -> str:
        """A token for `audience`, acting for `account` with `signer`."""
        key = (audience, account, signer)
        now = self._now()
        hit = self._cache.get(key)
        if hit is not None and hit[0] - now > TOKEN_SECONDS / 2:
            return hit[1]
        exp = now + TOKEN_SECONDS
        claims = {"iss": self._service, "aud": audience, "acc": account, "sgn": signer, "exp": int(exp)}
        value = jwt.encode(claims, self._key, algorithm="HS256")
        self._cache[key] = (exp, value)
        self._cache.move_to_end(key)
        if len(self._cache) > _CACHE:
            self._cache.popitem(last=False)
        return value


class TokenVerifier:
    """Checks tokens addressed to one service."""

    def __init__(self, audience: str, key: str, now: Callable[[], float] = time.time) -> None:
        self._audience, self._key, self._now = audience, key, now
        self._cache: OrderedDict[str, tuple[float, Caller]] = OrderedDict()

    def verify(self, token: str) -> Caller:
        """The caller a token names. Raises Unauthenticated when it is not valid here and now."""
        hit = self._cache.get(token)
        if hit is not None and hit[0] > self._now():
            return hit[1]
        try:
            c = jwt.decode(
                token,
                self._key,
                algorithms=["HS256"],
                audience=self._audience,
                options={"require": ["exp", "aud", "iss"], "verify_exp": False},
            )
        except jwt.PyJWTError:
            raise Unauthenticated("Internal token is not valid", code=INTERNAL_TOKEN) from None
        exp = float(c["exp"])
        if exp <= self._now():
            raise Unauthenticated("Internal token has expired", code=INTERNAL_TOKEN)
        caller = Caller(str(c["iss"]), str(c.get("acc", "")), str(c.get("sgn", "")))
        self._cache[token] = (exp, caller)
        if len(self._cache) > _CACHE:
            self._cache.popitem(last=False)
        return caller
