"""A process of ours from start to end: a real one, told by signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECRET = "what-the-user-wrote"

PROGRAM = """
import asyncio, sys
from libs import process, telemetry
from libs.settings import Settings

async def serve(settings, stop):
    log = telemetry.get_logger("unit")
    {body}

process.run("unit", Settings, serve)
"""


class Child:
    """The process and the lines it wrote on standard error."""

    def __init__(self, body: str, **env: str) -> None:
        program = PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), "    ").strip())
        given = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'gen'}"}
        given |= {"SEED_AGENTS_INTERNAL_KEY": "k" * 32} | env
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stderr=subprocess.PIPE, env=given, text=True, cwd=ROOT
        )

    def until(self, event: str) -> None:
        """Read lines until one says `event`."""
        deadline = time.monotonic() + 15
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if json.loads(line).get("event") == event:
                return
            assert time.monotonic() < deadline
        raise AssertionError(f"it ended without {event!r}")

    def end(self) -> tuple[int, str]:
        """Exit code, and what it wrote since."""
        _, err = self.process.communicate(timeout=15)
        return self.process.returncode, err


@pytest.fixture
def start() -> Iterator[Any]:
    children: list[Child] = []

    def make(body: str, **env: str) -> Child:
        children.append(Child(body, **env))
        return children[-1]

    yield make
    for child in children:
        child.process.kill()
        child.process.communicate()


def events(text: str) -> list[str]:
    return [json.loads(line)["event"] for line in text.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(start: Any, number: signal.Signals) -> None:
    child = start(
        """
        log.info("serving")
        await stop.wait()
        log.info("stopping")
        """
    )
    child.until("serving")
    child.process.send_signal(number)
    code, err = child.end()
    assert (code, events(err)) == (0, ["stopping", "stopped"])


def test_a_second_signal_ends_it_at_once(start: Any) -> None:
    child = start(
        """
        log.info("serving")
        await stop.wait()
        log.info("stopping")
        await asyncio.Event().wait()
        """
    )
    child.until("serving")
    child.process.terminate()
    child.until("stopping")
    child.process.terminate()
    code, err = child.end()
    assert (code, events(err)) == (1, ["ended at once"])


def test_a_fault_ends_it_and_its_text_is_not_written(start: Any) -> None:
    code, err = start(f"raise ExceptionGroup('x', [ValueError({SECRET!r})])").end()
    assert code == 1
    assert events(err) == ["starting", "ended by a fault"]
    assert SECRET not in err
    assert json.loads(err.splitlines()[-1])["fault"]["members"][0]["type"] == "ValueError"


def test_unusable_settings_end_it_before_it_starts(start: Any) -> None:
    code, err = start("pass", SEED_AGENTS_GRPC_PROT="1").end()
    assert code == 2
    assert err == "unit: Unknown setting SEED_AGENTS_GRPC_PROT. Did you mean SEED_AGENTS_GRPC_PORT?\n"


def test_what_it_decides_itself_is_its_exit_code(start: Any) -> None:
    code, err = start("sys.exit(3)").end()
    assert (code, events(err)) == (3, ["starting"])
