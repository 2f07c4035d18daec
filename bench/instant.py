"""A provider in a process of its own: `python -m bench.instant [SECONDS [SPREAD]]` prints its base URL and serves.

It answers at once, or after so many seconds, give or take the spread.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import uvloop

from libs.stack.scripted import Answer, Say, ScriptedProvider

_TEXT = "An instant answer."


async def _main(wait_s: float, spread_s: float) -> None:
    def late(_: dict[str, Any]) -> Answer:
        return Say((_TEXT,), delay_s=random.uniform(wait_s - spread_s, wait_s + spread_s))

    async with ScriptedProvider(late if wait_s else _TEXT, keep_requests=False) as provider:
        print(provider.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    given = [float(value) for value in sys.argv[1:]] + [0.0, 0.0]
    uvloop.run(_main(given[0], given[1]))
