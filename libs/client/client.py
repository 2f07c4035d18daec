"""Calls: sign an action, send it, read its answer."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
from msgspec import UNSET, UnsetType

from libs.protocol import ANSWERS, MUTATING, Action, AgentAction, Error, to_wire
from libs.protocol.actions import (
    CreateAgent,
    CreateSession,
    GetSession,
    MessageSession,
    SetModelProvider,
    SetSecret,
    StopSession,
)
from libs.protocol.agents import AgentDefinition
from libs.protocol.responses import (
    CreateAgentResponse,
    CreateSessionResponse,
    GetSessionResponse,
    MessageSessionResponse,
    StopSessionResponse,
)
from libs.protocol.secrets import ModelProviderConfig
from libs.protocol.sessions import TextPart
from libs.wire import DecodeError, Key, decode, principal_from_id

from .errors import ApiError, ClientError, ConnectionLost, UnexpectedAnswer
from .retry import Pauses, may_send_again, retry_after
from .signing import Signer
from .socket import SharedSocket
from .subscription import Subscription

MESSAGE_PATH = "/api/message"
WEBSOCKET_PATH = "/agents/ws"
DEFAULT_TIMEOUT_S = 30.0
TURN_TIMEOUT_S = 900.0
AWAY_S = 60.0
"""How long a server may be out of reach before calls and subscriptions give up."""
_WAITS_FOR_A_TURN = frozenset({"MessageSession", "RetrySession"})
_CLIENT_IDS = ("client_message_id", "client_request_id")
_MAX_CONNECTIONS = 256

R = TypeVar("R")


class Client:
    """One account on one server. Use it with `async with`, or call `close()`.

    `key` signs, a `Signer` when several clients share it. `account` is the id of the account acted for, by default the
    key's own. Calls may run concurrently; subscriptions share a WebSocket.
    """

    def __init__(
        self,
        url: str,
        key: Key | Signer,
        account: str | None = None,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        turn_timeout_s: float = TURN_TIMEOUT_S,
        away_s: float = AWAY_S,
    ) -> None:
        self.url = url.rstrip("/")
        self.signer = key if isinstance(key, Signer) else Signer(key)
        self.account = account or self.signer.key.id
        self._principal = principal_from_id(self.account)
        self._timeout_s = timeout_s
        self._turn_timeout_s = turn_timeout_s
        self._away_s = away_s
        self._http: aiohttp.ClientSession | None = None
        self._sockets: dict[bool, SharedSocket] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all subscriptions and connections."""
        for socket in self._sockets.values():
            await socket.close()
        self._sockets.clear()
        if self._http is not None:
            await self._http.close()
        self._http = None

    async def call(self, action: Action | str, /, **fields: Any) -> Any:
        """Send an action and return its typed answer, an instance of `libs.protocol.ANSWERS[name]`.

        `action` is a struct of `libs.protocol.actions`, or a name with its fields under their wire names. A struct that
        may carry a client id and has none gets a fresh one, so that no retry of any kind can act twice. Raises ApiError
        for a refusal, ConnectionLost, UnexpectedAnswer.
        """
        if isinstance(action, Action):
            plain = to_wire(_identified(action))
        else:
            plain = {"_": action, **fields}
        name = plain["_"]
        answer = await self.send(plain)
        kind = ANSWERS.get(name)
        if kind is None:
            raise UnexpectedAnswer(f"{name} has no answer that this client knows")
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as e:
            raise UnexpectedAnswer(f"The answer to {name} is not a {kind.__name__}: {e}") from e

    async def send(self, action: Mapping[str, Any]) -> Any:
        """Send an action given as a plain map with wire names; returns the decoded answer. Raises as `call` does."""
        name = action.get("_")
        patience = self._turn_timeout_s if name in _WAITS_FOR_A_TURN else self._timeout_s
        body = self.signer.sign(action, self._principal)
        return await self.send_envelope(body, mutating=name in MUTATING, timeout_s=patience)

    async def send_envelope(self, envelope: bytes, *, mutating: bool, timeout_s: float | None = None) -> Any:
        """Post signed bytes and return the decoded answer, trying again where that is safe until `timeout_s` is over.

        After a broken connection the same bytes go out again. A read may run twice; a mutation may not, and does not:
        the server answers signed bytes it has seen with the stored answer, or with 409 while the first is in flight,
        which is waited out. Raises ApiError, ConnectionLost, UnexpectedAnswer.
        """
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        reached = time.monotonic()
        pauses = Pauses()
        sent = 0
        while True:
            try:
                status, body, headers = await self._post(envelope, deadline)
                sent += 1
            except (aiohttp.ClientError, TimeoutError, OSError) as e:
                failure: ClientError = ConnectionLost(f"{self.url}: {_reason(e)}")
                wait = pauses.next()
                if not isinstance(e, aiohttp.ClientConnectorError):
                    sent += 1
                elif time.monotonic() + wait > reached + self._away_s:
                    raise failure from e
            else:
                reached = time.monotonic()
                if status == 200:
                    return _decode(body)
                failure = _refusal(status, body)
                if not may_send_again(failure, headers, mutating=mutating, sent=sent):
                    raise failure
                wait = retry_after(headers) or pauses.next()
            if time.monotonic() + wait >= deadline:
                raise failure
            await asyncio.sleep(wait)

    def subscribe(self, key: str, after_seq: int | None = None) -> Subscription:
        """The events of `key` (`account/…`, `agents/…`, `sessions/…`, `runs/…`), durable ones after `after_seq`.

        See `Subscription`: it reconnects and resumes by itself. All share one socket, but for `account/…`: it brings
        the events of every agent of the account, so it has a socket of its own.
        """
        firehose = key.startswith("account/")
        socket = self._sockets.get(firehose)
        if socket is None:
            url = self.url + WEBSOCKET_PATH
            socket = SharedSocket(url, self._session, self._sign_subscribe, self._away_s, firehose=firehose)
            self._sockets[firehose] = socket
        return socket.subscribe(key, after_seq)

    def at(self, url: str) -> Client:
        """The same account and key at another address, for instance another edge."""
        return self._another(url, self.account)

    def acting_for(self, account: str) -> Client:
        """The same key signing for another account, which must have authorized it."""
        return self._another(self.url, account)

    def _another(self, url: str, account: str) -> Client:
        return Client(
            url,
            self.signer,
            account,
            timeout_s=self._timeout_s,
            turn_timeout_s=self._turn_timeout_s,
            away_s=self._away_s,
        )

    # Short forms of what nearly every program does.

    async def set_secret(self, name: str, value: bytes, metadata: dict[str, Any] | None = None) -> None:
        """SetSecret."""
        await self.call(SetSecret(name=name, value=value, metadata=_given(metadata)))

    async def set_provider(self, name: str, provider: ModelProviderConfig) -> None:
        """SetModelProvider."""
        await self.call(SetModelProvider(name=name, provider=provider))

    async def create_agent(self, definition: AgentDefinition, client_request_id: str | None = None) -> str:
        """CreateAgent; returns the agent's id."""
        action = CreateAgent(definition=definition, client_request_id=_given(client_request_id))
        return (await self._ask(action, CreateAgentResponse)).agent_id

    async def create_session(
        self, agent_id: str, title: str | None = None, client_request_id: str | None = None
    ) -> str:
        """CreateSession; returns the session's id."""
        action = CreateSession(agent_id=agent_id, title=_given(title), client_request_id=_given(client_request_id))
        return (await self._ask(action, CreateSessionResponse)).session_id

    async def message(self, session_id: str, text: str, client_message_id: str | None = None) -> MessageSessionResponse:
        """MessageSession with one text part; returns when the turn ended, or at once when another turn is live."""
        content: list[Any] = [TextPart(text=text)]
        action = MessageSession(session_id=session_id, content=content, client_message_id=_given(client_message_id))
        return await self._ask(action, MessageSessionResponse)

    async def session(self, session_id: str, after_seq: int | None = None) -> GetSessionResponse:
        """GetSession."""
        return await self._ask(GetSession(session_id=session_id, after_seq=_given(after_seq)), GetSessionResponse)

    async def stop(self, session_id: str) -> bool:
        """StopSession; was anything running?"""
        return (await self._ask(StopSession(session_id=session_id), StopSessionResponse)).stopped

    async def _ask(self, action: AgentAction, answer: type[R]) -> R:
        got = await self.call(action)
        assert isinstance(got, answer)
        return got

    async def _post(self, envelope: bytes, deadline: float) -> tuple[int, bytes, Mapping[str, str]]:
        timeout = aiohttp.ClientTimeout(total=max(0.001, deadline - time.monotonic()))
        async with self._session().post(self.url + MESSAGE_PATH, data=envelope, timeout=timeout) as answer:
            return answer.status, await answer.read(), answer.headers

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS),
                headers={"Content-Type": "application/cbor", "Accept": "application/cbor"},
            )
        return self._http

    def _sign_subscribe(self, action: Mapping[str, Any]) -> bytes:
        return self.signer.sign(action, self._principal)


def _identified(action: Action) -> Action:
    for name in _CLIENT_IDS:
        if getattr(action, name, None) is UNSET:
            return msgspec.structs.replace(action, **{name: str(uuid.uuid4())})
    return action


def _given(value: Any) -> Any | UnsetType:
    return UNSET if value is None else value


def _decode(body: bytes) -> Any:
    try:
        return decode(body)
    except DecodeError as e:
        raise UnexpectedAnswer(f"The answer is not DAG-CBOR: {e}") from e


def _refusal(status: int, body: bytes) -> ClientError:
    try:
        error = msgspec.convert(decode(body), Error)
    except (DecodeError, msgspec.ValidationError):
        # A proxy in between answers in its own words.
        return ApiError(status, body[:200].decode("utf-8", "replace").strip() or f"HTTP {status}")
    return ApiError(status, error.message, None if isinstance(error.code, UnsetType) else error.code)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "nothing answers there"
    return str(error) or type(error).__name__
