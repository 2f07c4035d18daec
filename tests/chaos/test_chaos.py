"""Thirty faults while people talk: nothing is lost, doubled, out of order or stuck."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.faults import schedule
from tests.chaos.run import chaos, describe

KILLS = 30


def test_a_seed_gives_one_schedule() -> None:
    assert schedule(7, KILLS) == schedule(7, KILLS)
    assert schedule(7, KILLS) != schedule(8, KILLS)
    assert {fault.how for fault in schedule(7, 200)} == {"kill", "restart", "freeze"}
    assert len({fault.victim for fault in schedule(7, 200)}) == 10


@pytest.mark.timeout(400)
async def test_the_history_holds(tmp_path: Path) -> None:
    """The seed is printed; CHAOS_SEED gives it again."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"CHAOS_SEED={seed}")
    result = await chaos(tmp_path / "data", seed, KILLS)
    print(describe(result))
    assert not result.violations, f"CHAOS_SEED={seed}:\n" + "\n".join(result.violations)
    assert len(result.history.sent) >= KILLS
