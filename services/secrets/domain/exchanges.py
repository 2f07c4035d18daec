"""Exchanging the codes of sign-ins for tokens, after the request that brought them has been answered.

A code is exchanged at most once: a row is claimed before the provider is asked. A process that dies before that leaves
the code to another; one that dies after it leaves a sign-in that fails with a clear text, since the code may be spent.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from libs import telemetry, wire
from libs.audit import Actor
from libs.errors import SeedError
from libs.protocol.limits import OAUTH_SECRET_SUFFIX
from services.secrets.domain.keyring import UnknownKey
from services.secrets.domain.oauth import Credentials, Handshake, OAuthClient, OAuthFailure, TokenEndpoint
from services.secrets.domain.oauth import code_of as read_code
from services.secrets.domain.oauth import exchange as ask_for_tokens
from services.secrets.domain.sealing import CannotOpen
from services.secrets.domain.secrets import Clock, Metadata, Sealer
from services.secrets.domain.sign_ins import CODE, EXCHANGE_MS, HANDSHAKE, KEPT_MS, Login

log = telemetry.get_logger("sign-ins")

KIND: Final = "provider-oauth"
"""Metadata `kind` of a secret that holds the tokens of a sign-in."""
SERVICE: Final = "secrets"
_EVERY_S: Final = 2.0
_AT_ONCE: Final = 8
_INTERRUPTED: Final = "Sign-in was interrupted, start again"


class ExchangeStore(Protocol):
    """The rows of sign-ins, for those who exchange codes."""

    async def claim(self, now_ms: int) -> Login | None:
        """A submitted one, from now on this caller's alone."""
        ...

    async def complete(
        self, login: Login, by: Actor, new_id: str, name: str, sealed: bytes, metadata: Metadata, now_ms: int
    ) -> bool:
        """Store the credentials and end the sign-in; False, and nothing stored, when it has been ended meanwhile."""
        ...

    async def fail(self, account: str, login_id: str, error: str, now_ms: int) -> bool:
        """End an unfinished one."""
        ...

    async def end_interrupted(self, before_ms: int, error: str, now_ms: int) -> int:
        """End those whose exchange began before a time; returns how many."""
        ...

    async def forget(self, before_ms: int) -> None:
        """Delete those that ended before a time."""
        ...


class Exchanges:
    """Works off what has been submitted. `woken` is set when there is something new."""

    def __init__(
        self,
        rows: ExchangeStore,
        sealer: Sealer,
        endpoint: TokenEndpoint,
        clients: Mapping[str, OAuthClient],
        now: Clock,
        woken: asyncio.Event,
    ) -> None:
        self._rows, self._sealer, self._endpoint, self._clients = rows, sealer, endpoint, clients
        self._now, self._woken = now, woken
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._closing = False

    async def run(self) -> None:
        """Exchange codes until close(), then end with the last exchange; belongs into the service's task group."""
        async with asyncio.TaskGroup() as tasks:
            while not self._closing:
                self._woken.clear()
                try:
                    await self._sweep()
                    await self._take(tasks)
                except SeedError as e:
                    log.warning("sign-ins wait", error=e.message)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_S):
                        await self._woken.wait()

    def close(self) -> None:
        """Begin no further exchange."""
        self._closing = True
        self._woken.set()

    async def _sweep(self) -> None:
        now_ms = self._now_ms()
        if ended := await self._rows.end_interrupted(now_ms - EXCHANGE_MS, _INTERRUPTED, now_ms):
            log.warning("exchanges had been interrupted", count=ended)
        await self._rows.forget(now_ms - KEPT_MS)

    async def _take(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._slots.acquire()
            try:
                login = None if self._closing else await self._rows.claim(self._now_ms())
                if login is not None:
                    tasks.create_task(self._settle(login))
            except BaseException:
                self._slots.release()
                raise
            if login is None:
                self._slots.release()
                return

    async def _settle(self, login: Login) -> None:
        try:
            await self._exchange(login)
        except SeedError as e:
            log.warning("a sign-in could not be settled", login=login.id, error=e.message)
        except Exception as e:  # a fault of ours: the others go on, and this one is ended as interrupted
            log.error("a sign-in could not be settled", login=login.id, error=type(e).__name__, exc_info=e)
        finally:
            self._slots.release()

    async def _exchange(self, login: Login) -> None:
        try:
            credentials = await self._tokens(login)
        except OAuthFailure as e:
            await self._rows.fail(login.account, login.id, e.cause, self._now_ms())
            return
        except (CannotOpen, UnknownKey) as e:
            log.error("a sign-in does not open", login=login.id, error=type(e).__name__)
            await self._rows.fail(login.account, login.id, _INTERRUPTED, self._now_ms())
            return
        name, now_ms = f"{login.provider_type}{OAUTH_SECRET_SUFFIX}", self._now_ms()
        sealed = await self._sealer.seal(login.account, name, credentials.encode(), now_ms)
        described = wire.encode({"kind": KIND, "providerType": login.provider_type})
        metadata = Metadata(described, is_account_key=False, needs_reauth=False)
        by = Actor(login.account, login.signer, SERVICE)
        await self._rows.complete(login, by, str(uuid.uuid4()), name, sealed, metadata, now_ms)

    async def _tokens(self, login: Login) -> Credentials:
        client = self._clients.get(login.provider_type)
        if client is None or login.sealed is None or login.sealed_code is None:
            raise OAuthFailure(_INTERRUPTED)
        kept = await self._sealer.unseal(login.account, login.id, login.sealed, self._now_ms(), HANDSHAKE)
        answer = await self._sealer.unseal(login.account, login.id, login.sealed_code, self._now_ms(), CODE)
        verifier, state = msgspec.json.decode(kept, type=tuple[str, str])
        handshake = Handshake(verifier, state)
        code = read_code(answer.decode(), handshake)
        return await ask_for_tokens(self._endpoint, client, code, handshake, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._now() * 1000)
