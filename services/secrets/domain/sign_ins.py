"""Sign-ins to subscriptions: how one begins, what may become of it, and what is seen of it (actions.md)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from libs.errors import Forbidden, Invalid, NotFound
from libs.protocol.limits import OAUTH_CODE_BYTES, OAUTH_LOGIN_MS
from services.secrets.domain.oauth import Handshake, OAuthClient, authorization_url
from services.secrets.domain.secrets import Clock, Sealer
from services.secrets.domain.text import label, storable

PENDING: Final = "pending"
SUBMITTED: Final = "submitted"
EXCHANGING: Final = "exchanging"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
UNFINISHED: Final = (PENDING, SUBMITTED, EXCHANGING)

HANDSHAKE: Final = "sign-in"
"""Kind of place of what only we know of a sign-in."""
CODE: Final = "sign-in-code"
"""Kind of place of what the sign-in page gave."""

EXCHANGE_MS: Final = 45_000
"""An exchange that has not ended by then never will: its process is gone."""
KEPT_MS: Final = OAUTH_LOGIN_MS
"""How long a finished sign-in can still be asked for."""


@dataclass(frozen=True, slots=True)
class Login:
    """A sign-in as stored. Times in Unix milliseconds."""

    id: str
    account: str
    provider_type: str
    status: str
    secret_name: str
    error: str
    signer: str
    sealed: bytes | None
    sealed_code: bytes | None
    expires_at: int
    changed_at: int


@dataclass(frozen=True, slots=True)
class NewLogin:
    """A sign-in to store."""

    id: str
    account: str
    provider_type: str
    sealed: bytes
    now_ms: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A sign-in as its account sees it: status is pending, completed or failed."""

    id: str
    status: str
    secret_name: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """A sign-in that has begun."""

    id: str
    url: str
    expires_at: int


class LoginStore(Protocol):
    """The rows of sign-ins."""

    async def begin(self, new: NewLogin, replaced: str) -> None:
        """Store one; those of the account that are unfinished fail with the text `replaced`."""
        ...

    async def find(self, account: str, login_id: str) -> Login | None:
        """One of an account."""
        ...

    async def submit(self, account: str, login_id: str, signer: str, sealed_code: bytes, now_ms: int) -> bool:
        """Keep a code for the exchange; False unless the sign-in was pending."""
        ...

    async def fail(self, account: str, login_id: str, error: str, now_ms: int) -> bool:
        """End an unfinished one; False when it was finished."""
        ...


class SignIns:
    """The account's sign-ins. `clients` by provider type; `wake` tells whoever exchanges codes that one has come."""

    def __init__(
        self,
        rows: LoginStore,
        sealer: Sealer,
        now: Clock,
        clients: Mapping[str, OAuthClient],
        enabled: bool,
        wake: Callable[[], None],
    ) -> None:
        self._rows, self._sealer, self._now = rows, sealer, now
        self._clients, self._enabled, self._wake = clients, enabled, wake

    async def start(self, account: str, provider_type: str) -> Started:
        """Begin; the account's unfinished sign-in fails. Raises Forbidden while sign-in is off, then Invalid."""
        if not self._enabled:
            raise Forbidden("Subscription sign-in is not enabled on this server")
        kind = label(provider_type, "Provider type")
        client = self._clients.get(kind)
        if client is None:
            raise Invalid(f"Provider type does not support subscription sign-in: {kind}")
        login_id, now_ms, handshake = str(uuid.uuid4()), self._now_ms(), Handshake.new()
        kept = msgspec.json.encode([handshake.verifier, handshake.state])
        sealed = await self._sealer.seal(account, login_id, kept, now_ms, HANDSHAKE)
        new = NewLogin(login_id, account, kind, sealed, now_ms, now_ms + OAUTH_LOGIN_MS)
        await self._rows.begin(new, "Replaced by a new sign-in")
        return Started(login_id, authorization_url(client, handshake), new.expires_at)

    async def submit(self, account: str, signer: str, login_id: str, code: str) -> None:
        """Take what the sign-in page gave; the first code counts. Raises Invalid."""
        login_id = label(login_id, "Login id")
        code = label(code, "Authorization code", OAUTH_CODE_BYTES)
        seen = await self._find(account, login_id)
        if seen is None:
            raise Invalid("Sign-in not found")
        if seen.status == PENDING:
            sealed = await self._sealer.seal(account, login_id, code.encode(), self._now_ms(), CODE)
            if await self._rows.submit(account, login_id, signer, sealed, self._now_ms()):
                self._wake()
                return
            seen = await self._find(account, login_id)
        if seen is None or seen.status != PENDING:
            raise Invalid("Sign-in is no longer pending")

    async def status(self, account: str, login_id: str) -> Seen:
        """How a sign-in stands. Raises Invalid, NotFound."""
        seen = await self._find(account, label(login_id, "Login id"))
        if seen is None:
            raise NotFound("Sign-in not found")
        return seen

    async def cancel(self, account: str, login_id: str) -> str:
        """Give a sign-in up; a finished one is left as it is. Returns its id. Raises Invalid, NotFound."""
        seen = await self.status(account, login_id)
        if seen.status == PENDING:
            await self._rows.fail(account, seen.id, "Sign-in canceled", self._now_ms())
        return seen.id

    async def _find(self, account: str, login_id: str) -> Seen | None:
        login = await self._rows.find(account, login_id) if storable(login_id) else None
        return None if login is None else seen_at(login, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._now() * 1000)


def seen_at(login: Login, now_ms: int) -> Seen | None:
    """A sign-in as its account sees it at `now_ms`; None once it has been finished for so long that it is forgotten."""
    ends_at = login.expires_at if login.status == PENDING else login.expires_at + EXCHANGE_MS
    timed_out = login.status in UNFINISHED and now_ms >= ends_at
    finished_at = ends_at if timed_out else None if login.status in UNFINISHED else login.changed_at
    if finished_at is not None and now_ms - finished_at > KEPT_MS:
        return None
    if timed_out:
        return Seen(login.id, FAILED, error="Sign-in timed out")
    if login.status in UNFINISHED:
        return Seen(login.id, PENDING)
    return Seen(login.id, login.status, login.secret_name, login.error)
