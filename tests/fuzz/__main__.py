"""`make fuzz`: FUZZ mutated and replayed envelopes (default a million) over two edges. Exits with 1 when one is wrong.

Strides of ten thousand envelopes are dealt out to FUZZ_JOBS processes (default: one a core). Each stride has its own
account, so that lists stay short however many there are, and a seed of its own, so that it does not matter which
process takes it. Every answer is held against the oracle by the process that sent the envelope.

A million take about 16 minutes on two cores that have nothing else to do: 1.7 ms of processor each, of all processes
together, the edges and services more than half of it. Of fewer, more are wrong types, which cost three times as much.

FUZZ_SEED chooses the stream; it is printed, so that a run can be repeated.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from libs.stack import Stack
from tests.fuzz.house import ENVIRONMENT
from tests.fuzz.strides import run, settle


def main() -> int:
    """Run it."""
    count = int(os.environ.get("FUZZ", "1000000"))
    seed = int(os.environ.get("FUZZ_SEED", str(time.time_ns() % 1_000_000)))
    jobs = int(os.environ.get("FUZZ_JOBS", str(os.cpu_count() or 1)))
    print(f"{count} envelopes, seed {seed}, {jobs} processes", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        # The stores' processes run as another user.
        Path(folder).chmod(0o755)
        with Stack(Path(folder) / "data", edges=2, workers=1, env=ENVIRONMENT) as stack:
            total = run(stack.urls, seed, count, jobs)
            asyncio.run(settle(stack.urls, total))
    for (kind, outcome), times in sorted(total.seen.items()):
        print(f"{kind:12} {outcome:14} {times}")
    print(f"{total.replays} replays, {len(total.faults)} faults")
    for fault in total.faults[:50]:
        print(fault)
    return 1 if total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
