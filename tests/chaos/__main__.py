"""`python -m tests.chaos`: a chaos run of any length, from a seed of any origin."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import chaos, describe


def main() -> int:
    """0 when the history holds; else its data directory, logs included, is kept."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}: make chaos KILLS={options.kills} SEED={seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix=f"seed-agents-chaos-{seed}-"))
    result = asyncio.run(chaos(folder / "data", seed, options.kills, lambda text: print(text, flush=True)))
    print(describe(result))
    if result.violations:
        print(f"\n{len(result.violations)} violations (seed {seed}); logs in {folder / 'data' / 'logs'}")
        print("\n".join(f"  {text}" for text in result.violations))
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print("the history holds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
