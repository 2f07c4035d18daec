"""How long verbs wait for the services behind them.

A service that is away makes the verb fail, never the turn: the model is told and can go on. What repeats safely is
tried until `PATIENCE_S` is over; the rest once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from libs.errors import BadGateway, Unavailable

PATIENCE_S = 10.0
STREAM_S = 120.0
DOWNLOAD_S = 540.0
"""What a download may take; people's use of a verb ends after 10 minutes."""
_PAUSE_S = 0.2

T = TypeVar("T")


async def again(attempt: Callable[[], Awaitable[T]]) -> T:
    """Try something that may be repeated until its service is back, at most `PATIENCE_S` seconds. Raises as it does."""
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            return await attempt()
        except BadGateway:
            raise
        except Unavailable:
            if asyncio.get_running_loop().time() + _PAUSE_S > end:
                raise
        await asyncio.sleep(_PAUSE_S)
