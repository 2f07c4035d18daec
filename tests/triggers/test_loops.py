"""A watch outlives what it does, and does not repeat itself in the log."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from libs.errors import Unavailable
from services.triggers.monitor import loops


async def test_a_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    script: list[Exception | None] = [
        Unavailable("away"), Unavailable("away"), None, RuntimeError("x"), RuntimeError("x"), Unavailable("away"), None,
    ]  # fmt: skip
    done, left = asyncio.Event(), iter(script)

    async def act() -> None:
        try:
            step = next(left)
        except StopIteration:
            done.set()
            return
        if step is not None:
            raise step

    with capture_logs() as logs:
        monkeypatch.setattr(loops, "log", loops.telemetry.get_logger("triggers"))
        watch = asyncio.create_task(loops.every(0, "x", act))
        async with asyncio.timeout(5):
            await done.wait()
        watch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watch
    assert [entry["event"] for entry in logs] == ["waits", "goes on", "failed", "waits", "goes on"]
