"""Stand-in children and waiting, for the supervisor's tests."""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from libs.stack.ports import free_ports
from libs.stack.probes import http_ready
from libs.stack.process import Backoff, Command

MakeCommand = Callable[..., Command]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """What the stand-ins noted, in order."""
    path = tmp_path / "journal"
    path.touch()
    return path


@pytest.fixture
def stand_in(tmp_path: Path, journal: Path) -> MakeCommand:
    def make(name: str = "child", *behaviour: str, port: int | None = None, **options: object) -> Command:
        port = port or free_ports(1)[0]
        script = Path(__file__).with_name("stand_in.py")
        settings = {
            "name": name,
            "argv": [sys.executable, "-I", "-S", str(script), name, str(port), str(journal), *behaviour],
            "env": {},
            "log": tmp_path / f"{name}.log",
            "address": f"127.0.0.1:{port}",
            "probe": partial(http_ready, "127.0.0.1", port, "/"),
            "backoff": Backoff(first=0.01, limit=0.05),
            **options,
        }
        return Command(**settings)  # pyright: ignore[reportArgumentType]

    return make


def wait_for(condition: Callable[[], object], within: float = 10.0) -> None:
    """Return once the condition holds; fail when it does not within so many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)
