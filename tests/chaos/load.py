"""Who uses the system during a chaos run: writers that insist on an answer, readers that must miss nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec

from libs.client import ApiError, Client, ClientError, ConnectionLost
from libs.protocol import MUTATING
from libs.protocol.ws import WsRunChange, WsSessionAppend, WsSessionChange
from libs.wire import principal_from_id
from tests.chaos.history import TERMINAL, Followed, Seen, Sent
from tests.chaos.model import FAILURE, WORK

PATIENCE_S = 100.0
"""How long a writer sends the same bytes again; nothing is away for so long."""
_TRY_S = 45.0
_AGAIN_S = 0.2
MESSAGES_A_SESSION = 30


class Insisting:
    """One account at all edges: the same signed bytes go out until there is an answer, now here, now there."""

    def __init__(self, clients: list[Client], chance: random.Random) -> None:
        self._clients, self._chance = clients, chance

    async def send(self, action: Mapping[str, Any]) -> Any:
        """The answer. ApiError for a refusal that is none of the moment, ConnectionLost when patience ends."""
        first = self._clients[0]
        body = first.signer.sign(action, principal_from_id(first.account))
        end = time.monotonic() + PATIENCE_S
        last: ClientError = ConnectionLost("nothing was tried")
        while (left := end - time.monotonic()) > 0:
            client = self._chance.choice(self._clients)
            try:
                return await client.send_envelope(body, mutating=action["_"] in MUTATING, timeout_s=min(left, _TRY_S))
            except ConnectionLost as e:
                last = e
            except ApiError as e:
                moment = e.status == 503 or (e.status == 409 and "still being handled" in e.message)
                if not moment:
                    raise
                last = e
            await asyncio.sleep(_AGAIN_S)
        raise ConnectionLost(f"no answer for {PATIENCE_S:.0f} s, last: {last}")


def _carried_out(error: ApiError) -> bool:
    """It was carried out, and whoever was to keep its answer was killed: the owner only knows that it has been."""
    return error.status == 409 and error.message == "This signed request has already been accepted"


class Writer:
    """Talks in one session after the other until `stop`; `opened` is told of each session."""

    def __init__(
        self, name: str, insisting: Insisting, agent: str, chance: random.Random, opened: Callable[[str], None]
    ) -> None:
        self._name, self._insisting, self._agent, self._chance, self._opened = name, insisting, agent, chance, opened
        self._numbers = itertools.count(1)
        self.sent: list[Sent] = []
        self.trouble: list[str] = []
        """Refusals of requests other than messages that no rule explains."""

    async def run(self, stop: asyncio.Event) -> None:
        """Returns when everything that was sent has its answer."""
        async with asyncio.TaskGroup() as talk:
            while not stop.is_set():
                request = f"{self._name}-{next(self._numbers)}"
                made = await self._create({"_": "CreateSession", "agentId": self._agent, "clientRequestId": request})
                if made is None:
                    return
                self._opened(made["sessionId"])
                for _ in range(MESSAGES_A_SESSION):
                    if stop.is_set():
                        break
                    await self._step(talk, made["sessionId"])

    async def _step(self, talk: asyncio.TaskGroup, session: str) -> None:
        chance = self._chance.random()
        if chance < 0.03:
            talk.create_task(self._quietly({"_": "StopSession", "sessionId": session}))
        elif chance < 0.06:
            talk.create_task(self._cancel(session))
        elif chance < 0.10:
            talk.create_task(self._quietly({"_": "RetrySession", "sessionId": session}))
        else:
            message = talk.create_task(self._message(session))
            # Most wait for the answer before they go on; some write on, so that turns queue up.
            if chance < 0.75:
                await asyncio.wait([message], timeout=8.0)
        await asyncio.sleep(self._chance.uniform(0.2, 0.9))

    async def _message(self, session: str) -> None:
        tag = f"m-{self._name}-{next(self._numbers)}"
        text = f"[{tag} {self._chance.choice(WORK)}] please"
        action: dict[str, Any] = {
            "_": "MessageSession",
            "sessionId": session,
            "content": [{"type": "text", "text": text}],
        }
        if self._chance.random() < 0.5:
            action["clientMessageId"] = tag
        one = Sent(tag, session, "pending")
        self.sent.append(one)
        try:
            answer = await self._insisting.send(action)
            if "clientMessageId" in action and self._chance.random() < 0.2:
                # Signed anew, as a person does who presses the button twice.
                again = await self._insisting.send(action)
                # What was not waited for may have its event by now; what had one keeps it.
                names = ("assistantEventId", "continuedToSessionId")
                if any(answer.get(name, "") not in ("", again.get(name)) for name in names):
                    self.trouble.append(f"{tag}: sent twice, answered {answer} and {again}")
            one.outcome, one.answer = "ok", answer["assistantEventId"]
        except ApiError as e:
            failed = e.message.startswith(FAILURE)
            one.outcome = "failed" if failed else f"{e.status} {e.message}"
        except ClientError as e:
            one.outcome = str(e)

    async def _cancel(self, session: str) -> None:
        listed = await self._quietly({"_": "ListRuns", "sessionId": session, "limit": 10})
        live = [run["id"] for run in (listed or {}).get("runs", ()) if run["status"] not in TERMINAL]
        if live:
            await self._quietly({"_": "CancelRun", "runId": self._chance.choice(live)})

    async def _create(self, action: dict[str, Any]) -> Any:
        """What a creation made, which its client id finds again when the answer to its signature is lost."""
        try:
            return await self._insisting.send(action)
        except ApiError as e:
            if not _carried_out(e):
                self.trouble.append(f"{action['_']}: {e.status} {e.message}")
                return None
        except ClientError as e:
            self.trouble.append(f"{action['_']}: {e}")
            return None
        return await self._quietly(action)

    async def _quietly(self, action: dict[str, Any]) -> Any:
        try:
            return await self._insisting.send(action)
        except ApiError as e:
            expected = action["_"] == "RetrySession" and (e.status in (400, 409) or e.message.startswith(FAILURE))
            # A creation has a client id and is asked again; of a stop or a cancel there is nothing more to be told.
            done = _carried_out(e) and action["_"] in ("StopSession", "CancelRun", "RetrySession")
            if not expected and not done:
                self.trouble.append(f"{action['_']}: {e.status} {e.message}")
        except ClientError as e:
            self.trouble.append(f"{action['_']}: {e}")
        return None


class Reader:
    """Follows a session by the SDK's subscription, or a tree of runs."""

    def __init__(self, client: Client, key: str, name: str) -> None:
        self.seen = Seen(name, key.partition("/")[2], [])
        self.followed = Followed(name, [])
        self._subscription = client.subscribe(key)
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self._subscription:
            if isinstance(event, WsSessionAppend):
                self.seen.events.append((event.event.seq, event.event.id))
            elif isinstance(event, WsSessionChange):
                self.seen.status = event.value.status
            elif isinstance(event, WsRunChange):
                self.followed.states.append((event.value.id, event.value.status, event.value.updated_at))

    async def close(self) -> str:
        """Stop; returns why it ended before, empty when it did not."""
        await self._subscription.aclose()
        try:
            await self._task
        except ClientError as e:
            return f"{self.seen.name} of {self.seen.session} ended: {e}"
        return ""


class StrictReader:
    """Follows a session by a plain socket and mends nothing: what the server doubles or leaves out stays so.

    A new socket asks for what follows the last event, and goes to the next edge.
    """

    def __init__(self, client: Client, urls: list[str], session: str, name: str) -> None:
        self.seen = Seen(name, session, [])
        self._client, self._urls = client, itertools.cycle(urls)
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                    async with http.ws_connect(f"{next(self._urls)}/agents/ws", heartbeat=5.0, max_msg_size=0) as ws:
                        await self._follow(ws)
                await asyncio.sleep(_AGAIN_S)

    async def _follow(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        action: dict[str, Any] = {"_": "Subscribe", "key": f"sessions/{self.seen.session}"}
        if self.seen.events:
            action["afterSeq"] = self.seen.events[-1][0]
        await ws.send_bytes(self._client.signer.sign(action, principal_from_id(self._client.account)))
        async for message in ws:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            frame = msgspec.json.decode(message.data)
            if frame["_"] == "append":
                self.seen.events.append((frame["event"]["seq"], frame["event"]["id"]))
            elif frame["_"] == "change":
                self.seen.status = frame["value"]["status"]
            elif frame["_"] == "error":
                return

    async def close(self) -> str:
        """Stop; it never ends by itself."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        return ""
