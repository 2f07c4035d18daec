"""`make fuzz`: FUZZ mutated and replayed envelopes (default a million) over two edges. Exits with 1 when one is wrong.

FUZZ_SEED chooses the stream; it is printed, so that a run can be repeated.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

from libs.stack import Stack
from tests.fuzz.house import ENVIRONMENT, house

_STRIDE = 20_000


async def _fuzz(stack: Stack, count: int, seed: int) -> int:
    started = time.monotonic()
    async with house(stack, seed) as h:
        found = h.fuzzer.findings
        typed = itertools.islice(h.mutator.wrong_types(), count // 5)
        stream = h.mutator.stream()
        mixed = itertools.islice(itertools.chain(typed, stream), count)
        for at in range(0, count, _STRIDE):
            await h.fuzzer.run(itertools.islice(mixed, _STRIDE))
            sent = min(at + _STRIDE, count)
            print(f"{sent} sent, {sent / (time.monotonic() - started):.0f}/s, {len(found.faults)} faults", flush=True)
        await h.fuzzer.settle_suspects()
        still_there = (await h.client.session(h.session)).session.agent_id == h.agent
    for (kind, outcome), times in sorted(found.seen.items()):
        print(f"{kind:12} {outcome:14} {times}")
    print(f"{h.fuzzer.replays} replays")
    for fault in found.faults[:50]:
        print(fault)
    return 0 if still_there and not found.faults else 1


def main() -> int:
    """Run it."""
    count = int(os.environ.get("FUZZ", "1000000"))
    seed = int(os.environ.get("FUZZ_SEED", str(time.time_ns() % 1_000_000)))
    print(f"{count} envelopes, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        # The stores' processes run as another user.
        Path(folder).chmod(0o755)
        with Stack(Path(folder) / "data", edges=2, env=ENVIRONMENT) as stack:
            return asyncio.run(_fuzz(stack, count, seed))


if __name__ == "__main__":
    sys.exit(main())
