"""Waiting for the end of a turn.

The news comes over the bus to the edge that asked; whoever misses it asks the owner, first after a second, then every
two, and at once when the bus is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from libs.errors import BadGateway, Invalid, NotFound, SeedError, Unauthenticated, Unavailable

FIRST_ASK_S = 1.0
NEXT_ASK_S = 2.0
_FAILURES: dict[int, type[SeedError]] = {400: Invalid, 401: Unauthenticated, 502: BadGateway, 503: Unavailable}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended. `gone` is the noun of what was deleted in mid-turn."""

    status: str
    assistant_event_id: str = ""
    error_message: str = ""
    error_status: int = 0
    gone: str = ""
    continued_to: str = ""
    """The session that answers instead."""


def answer_of(outcome: Outcome) -> str:
    """The assistantEventId a waiting caller gets; empty when the turn wrote none.

    Raises NotFound when session or agent are gone, and what the turn failed with: Invalid, Unauthenticated, BadGateway.
    """
    if outcome.gone:
        raise NotFound(f"{outcome.gone} not found")
    if outcome.status == "failed":
        raise _FAILURES.get(outcome.error_status, BadGateway)(outcome.error_message or "The turn failed")
    return outcome.assistant_event_id


Ask = Callable[[str], Awaitable[Outcome | None]]
"""Asks the owner for a run's outcome; None while it has none."""


class TurnWaits:
    """Those who wait on this edge, by run id. `ask` may raise: it is then asked again."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waiting: dict[str, set[asyncio.Future[Outcome]]] = {}
        self._hurry = asyncio.Event()
        self._closing = False

    def settled(self, run_id: str, outcome: Outcome) -> None:
        """News from the bus."""
        for future in self._waiting.get(run_id, ()):
            if not future.done():
                future.set_result(outcome)

    async def ask_now(self) -> None:
        """News may have been lost: everybody asks at once."""
        hurry, self._hurry = self._hurry, asyncio.Event()
        hurry.set()

    def close(self) -> None:
        """Let everybody go, and whoever comes later: the same request is to be sent again, to another edge."""
        self._closing = True
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(_stopping())

    async def wait(self, run_id: str, timeout_s: float, begin: Callable[[], Awaitable[None]]) -> Outcome | None:
        """Call `begin`, which starts the turn, and wait for its outcome; None when it has none within `timeout_s`.

        Raises Unavailable when this edge stops before.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        # Who has gone meanwhile leaves a refusal that nobody reads.
        future.add_done_callback(_read)
        self._waiting.setdefault(run_id, set()).add(future)
        if self._closing:
            future.set_exception(_stopping())
        try:
            await begin()
            end = loop.time() + timeout_s
            pause = FIRST_ASK_S
            while not future.done() and (left := end - loop.time()) > 0:
                if await self._news(future, min(pause, left)):
                    break
                found = await self._asked(run_id)
                if found is not None:
                    return found
                pause = NEXT_ASK_S
            return future.result() if future.done() else None
        finally:
            waiting = self._waiting[run_id]
            waiting.discard(future)
            if not waiting:
                del self._waiting[run_id]

    async def _news(self, future: asyncio.Future[Outcome], pause_s: float) -> bool:
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait((future, hurry), timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
        return future.done()

    async def _asked(self, run_id: str) -> Outcome | None:
        try:
            return await self._ask(run_id)
        except SeedError:
            # Away, or the run is not there yet: sessions starts the turn of every saved message sooner or later.
            return None


def _stopping() -> Unavailable:
    return Unavailable("This server is being restarted, send the request again", retry_after_s=1)


def _read(future: asyncio.Future[Outcome]) -> None:
    if not future.cancelled():
        future.exception()
