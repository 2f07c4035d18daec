"""The instant provider, in a process of its own: `python -m bench.instant` prints its base URL and serves."""

from __future__ import annotations

import asyncio

import uvloop

from libs.stack.scripted import ScriptedProvider


async def _main() -> None:
    async with ScriptedProvider("An instant answer.", keep_requests=False) as provider:
        print(provider.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_main())
