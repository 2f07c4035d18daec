"""The OAuth side of a sign-in: authorization code with PKCE (RFC 6749, RFC 7636), without a listener of our own.

The provider redirects the browser to the user's own machine; what arrives there comes back to us as an action.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

OPENAI: Final = "openai"
_ACCOUNT_CLAIM: Final = "https://api.openai.com/auth"


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A public client registered with a provider. `extra`: parameters of its sign-in page beyond the standard ones."""

    client_id: str
    authorize_url: str
    token_url: str
    redirect_uri: str
    scope: str
    extra: Mapping[str, str]


class OAuthFailure(Exception):
    """A token was not given. The text is a cause fit for the public.

    `refused` says that the provider will not change its mind: the code or the refresh token is worth nothing.
    """

    def __init__(self, cause: str, *, refused: bool = False) -> None:
        super().__init__(cause)
        self.cause, self.refused = cause, refused


class TokenEndpoint(Protocol):
    """How a provider is asked for tokens."""

    async def post(self, url: str, form: Mapping[str, str]) -> bytes:
        """The body of a 2xx answer to a form. Raises OAuthFailure."""
        ...


@dataclass(frozen=True, slots=True)
class Handshake:
    """What only we know of a sign-in."""

    verifier: str
    state: str

    @classmethod
    def new(cls) -> Handshake:
        """Fresh, 256 bits each."""
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32))

    def __repr__(self) -> str:
        return "Handshake()"


class Credentials(msgspec.Struct, frozen=True):
    """The tokens of a sign-in as they are kept (JSON): `expires` is Unix milliseconds, `account` the provider's."""

    access: str
    refresh: str
    expires: int
    account: str = msgspec.field(default="", name="accountId")

    def encode(self) -> bytes:
        """As stored."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, stored: bytes) -> Credentials | None:
        """What `encode` gave; None for anything else."""
        try:
            return msgspec.json.decode(stored, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def __repr__(self) -> str:
        return "Credentials()"


def authorization_url(client: OAuthClient, handshake: Handshake) -> str:
    """The page on which the user signs in."""
    digest = hashlib.sha256(handshake.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_uri,
        "scope": client.scope,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "state": handshake.state,
        **client.extra,
    }
    return f"{client.authorize_url}{'&' if '?' in client.authorize_url else '?'}{urlencode(query)}"


def read_answer(text: str) -> tuple[str, str]:
    """Code and state in what the user brought back; empty texts for what is missing.

    Read are a whole redirect URL, its query string, `code#state`, and a bare code.
    """
    text = text.strip()
    try:
        parts = urlsplit(text)
    except ValueError:
        return "", ""
    if parts.scheme in ("http", "https") and parts.netloc:
        return _from_query(parts.query)
    if "code=" in text or "error=" in text:
        return _from_query(text.removeprefix("?"))
    code, _, state = text.partition("#")
    return code, state


def code_of(answer: str, handshake: Handshake) -> str:
    """The code to exchange. Raises OAuthFailure when there is none, or when it belongs to another sign-in."""
    code, state = read_answer(answer)
    if state and not secrets.compare_digest(state.encode(), handshake.state.encode()):
        raise OAuthFailure("The code belongs to another sign-in", refused=True)
    if not code:
        raise OAuthFailure("There is no authorization code in it", refused=True)
    return code


async def exchange(
    endpoint: TokenEndpoint, client: OAuthClient, code: str, handshake: Handshake, now_ms: int
) -> Credentials:
    """Tokens for a code. Raises OAuthFailure."""
    form = {
        "grant_type": "authorization_code",
        "client_id": client.client_id,
        "code": code,
        "code_verifier": handshake.verifier,
        "redirect_uri": client.redirect_uri,
    }
    credentials = _read_tokens(await endpoint.post(client.token_url, form), None, now_ms)
    if not credentials.account:
        raise OAuthFailure("The provider named no account")
    return credentials


async def refresh(endpoint: TokenEndpoint, client: OAuthClient, old: Credentials, now_ms: int) -> Credentials:
    """Fresh tokens for old ones. Raises OAuthFailure."""
    form = {"grant_type": "refresh_token", "client_id": client.client_id, "refresh_token": old.refresh}
    return _read_tokens(await endpoint.post(client.token_url, form), old, now_ms)


def _from_query(query: str) -> tuple[str, str]:
    fields = parse_qs(query)
    return fields.get("code", [""])[0], fields.get("state", [""])[0]


def _read_tokens(body: bytes, old: Credentials | None, now_ms: int) -> Credentials:
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        answer = None
    tokens = answer if isinstance(answer, dict) else {}
    access, again, seconds = (tokens.get(key) for key in ("access_token", "refresh_token", "expires_in"))
    if again is None and old is not None:
        again = old.refresh  # RFC 6749, section 6: no new one means that the old one stays good
    if not isinstance(access, str) or not access or not isinstance(again, str) or not again:
        raise OAuthFailure("The provider's answer holds no tokens")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 10**9:
        raise OAuthFailure("The provider's answer does not say how long its tokens last")
    account = _account(access) or (old.account if old is not None else "")
    return Credentials(access, again, now_ms + int(seconds * 1000), account)


def _account(access: str) -> str:
    """The ChatGPT account that an access token (a JWT) is for; empty if it does not say. Not verified, only relayed."""
    parts = access.split(".")
    if len(parts) != 3:
        return ""
    try:
        claims: Any = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return ""
    mine = claims.get(_ACCOUNT_CLAIM) if isinstance(claims, dict) else None
    account = mine.get("chatgpt_account_id") if isinstance(mine, dict) else None
    return account if isinstance(account, str) else ""
