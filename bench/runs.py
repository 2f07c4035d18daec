"""The engine of runs, on stacks of its own."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from .parked import parked
from .recovery import cancels, kills
from .site import Amounts, Site, site
from .subject import ENVIRONMENT
from .turns import at_once, completions, creations, dispatch

LEASE_S = 3.0
# A tree runs as a whole, beyond the share of an account.
_TWO = {
    **ENVIRONMENT,
    "SEED_AGENTS_LEASE_MS": str(int(LEASE_S * 1000)),
    "SEED_AGENTS_RUNS_PER_ACCOUNT": "200",
    "SEED_AGENTS_BACKGROUND_RUNS_PER_ACCOUNT": "200",
}
# Older than that when it is claimed, a run pauses.
_PAUSING = {**ENVIRONMENT, "SEED_AGENTS_RUN_WALL_MS": "1"}
_MOST_S = 180.0


async def measure(folder: Path, amounts: Amounts, say: Callable[[str], None]) -> dict[str, Any]:
    """All figures of issue 'runs', by name; one that could not be measured has an `error` in place of them."""
    results: dict[str, Any] = {"lease_s": LEASE_S}

    async def part(name: str, work: Callable[[Site], Awaitable[dict[str, Any]]], at: Site) -> None:
        try:
            async with asyncio.timeout(_MOST_S):
                results[name] = await work(at)
        except Exception as e:  # noqa: BLE001 - one figure that is missing must not cost the others; the table shows it
            traceback.print_exc()
            results[name] = {"error": f"{type(e).__name__}: {e}"}
        say(f"{name}: {results[name]}")

    async with site(folder / "pausing", amounts, _PAUSING, workers=2) as at:
        await part("parked", parked, at)
    async with site(folder / "one", amounts, ENVIRONMENT, workers=1) as at:
        worker = at.stack.process("worker")
        await asyncio.to_thread(worker.stop)
        await part("creations", creations, at)
        worker.start()
        await asyncio.to_thread(worker.wait_ready)
        await part("completions", completions, at)
        await part("at_once", at_once, at)
        await part("dispatch", dispatch, at)
    async with site(folder / "two", amounts, _TWO, workers=2) as at:
        await part("kills", kills, at)
        await part("cancels", cancels, at)
    return results
