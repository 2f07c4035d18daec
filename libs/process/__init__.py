"""Running a process of ours: settings, logs, metrics, the event loop, and an orderly end on SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

from libs import telemetry
from libs.settings import Settings, SettingsError, load

__all__ = ["run"]

S = TypeVar("S", bound=Settings)

Serve = Callable[[S, asyncio.Event], Awaitable[None]]
"""Builds the parts, serves until the event is set, then stops in its written order."""


def run(service: str, settings: type[S], serve: Serve[S]) -> None:
    """Run `serve(settings, stop)` until it returns. Exits with 2 and a clear text when the settings are unusable."""
    try:
        values = load(settings)
    except SettingsError as e:
        print(f"{service}: {e}", file=sys.stderr)
        raise SystemExit(2) from None
    telemetry.configure(service, values.log_level)
    telemetry.start_metrics(values.metrics_host, values.metrics_port)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        telemetry.get_logger(service).info("starting")
        await serve(values, stop)
        telemetry.get_logger(service).info("stopped")

    uvloop.run(main())
