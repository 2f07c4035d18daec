"""Running a process of ours: settings, logs, metrics, the event loop, and an orderly end on SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

from libs import telemetry
from libs.settings import Settings, SettingsError, load

__all__ = ["run", "settle_heap"]

S = TypeVar("S", bound=Settings)

Serve = Callable[[S, asyncio.Event], Awaitable[None]]
"""Builds the parts, serves until the event is set, then stops in its written order."""


def settle_heap() -> None:
    """Tell the garbage collector that what is loaded now stays: it need not walk modules and classes again and again.

    Call it after imports, and after a library that was loaded on its first use.
    """
    gc.collect()
    gc.freeze()
    # Requests make short-lived objects by the thousand; the default of 700 has the collector run several times in each.
    gc.set_threshold(10_000, 20, 20)


def run(service: str, settings: type[S], serve: Serve[S]) -> None:
    """Run `serve(settings, stop)` until it returns; SIGTERM or Ctrl-C sets `stop`, a second one cancels.

    Exits with 2 and a clear text when the settings are unusable, with 1 after a fault or a second signal.
    """
    try:
        values = load(settings)
    except SettingsError as e:
        print(f"{service}: {e}", file=sys.stderr)
        raise SystemExit(2) from None
    telemetry.configure(service, values.log_level)
    telemetry.start_metrics(values.metrics_host, values.metrics_port)
    tracer = None
    if values.otlp_endpoint:
        from libs.telemetry import otlp

        tracer = otlp.start(service, values.otlp_endpoint)
    settle_heap()

    log = telemetry.get_logger(service)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def ask() -> None:
            # Asked again, it ends without its order.
            if stop.is_set():
                task.cancel()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ask)
        log.info("starting")
        await serve(values, stop)
        log.info("stopped")

    try:
        uvloop.run(main())
    except asyncio.CancelledError:
        log.warning("ended at once")
        raise SystemExit(1) from None
    except Exception as e:  # printed by us: Python would print its text, which may hold what users wrote
        log.error("ended by a fault", error=type(e).__name__, exc_info=e)
        raise SystemExit(1) from None
    finally:
        if tracer is not None:
            tracer.close()
