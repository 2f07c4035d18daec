"""What the measurements of runs share: a stack, its rows, and how much of everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from libs.stack import Stack

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Amounts:
    """How much is measured; `SMALL` proves in a minute or two that everything works."""

    idle_s: float = 20.0
    settle_s: float = 5.0
    load_s: float = 4.0
    rounds: int = 3
    queued: int = 1_000
    first_runs: int = 100
    parked: int = 10_000
    fill_s: float = 45.0
    wakes: int = 150
    kills: int = 5
    trees: int = 7


SMALL = Amounts(
    idle_s=4.0, settle_s=2.0, load_s=2.0, rounds=1, queued=200, first_runs=20, parked=600, fill_s=6.0, wakes=15,
    kills=2, trees=2,
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """A stack and the administrator's view of its rows."""

    stack: Stack
    rows: asyncpg.Connection
    amounts: Amounts

    async def count(self, query: str, *values: Any) -> int:
        """A number out of the rows."""
        return int(await self.rows.fetchval(query, *values) or 0)

    async def until(self, done: Callable[[], Awaitable[bool]], what: str, every_s: float = 0.02) -> float:
        """Wait until `done`; the monotonic time at which it was seen. Raises RuntimeError after a minute."""
        end = time.monotonic() + _PATIENCE_S
        while not await done():
            if time.monotonic() > end:
                raise RuntimeError(f"waited in vain: {what}")
            await asyncio.sleep(every_s)
        return time.monotonic()


@asynccontextmanager
async def site(folder: Path, amounts: Amounts, environment: Mapping[str, str], workers: int) -> AsyncIterator[Site]:
    """A fresh stack, stopped at the end."""
    async with Stack(folder, 0, workers=workers, env=environment) as stack:
        rows = await asyncpg.connect(stack.stores.database_url)
        try:
            yield Site(stack, rows, amounts)
        finally:
            await rows.close()
