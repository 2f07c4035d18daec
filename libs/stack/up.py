"""`seed-agents up`: the stack in a terminal."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from libs.settings import Settings, SettingsError, load

from .errors import Aborted, Death, StackError
from .plan import CLIENT_VARIABLES
from .process import ManagedProcess
from .stack import Stack

# From this many deaths in a row on, what the child last said is worth the screen.
_KEEPS_DYING = 3


def up(
    data_dir: Path, http_port: int, *, edges: int = 1, workers: int = 1, timings: bool = False, verbose: bool = False
) -> int:
    """Serve until Ctrl-C or SIGTERM; returns the exit code."""
    out = Console(highlight=False)
    err = Console(stderr=True, highlight=False)
    stopped = threading.Event()
    try:
        _check_settings()
    except SettingsError as error:
        err.print(str(error), markup=False)
        return 2

    def on_death(death: Death) -> None:
        err.print(f"{death.describe()}; starting it again in {death.retry_in:.1f} s", markup=False)
        if death.streak >= _KEEPS_DYING:
            err.print("\n".join(f"  | {line}" for line in death.last_lines), markup=False)

    stack = Stack(
        data_dir,
        http_port,
        edges=edges,
        workers=workers,
        on_death=on_death,
        on_step=lambda text: err.print(text, markup=False),
    )

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():
            stack.hurry()
        stopped.set()
        stack.abort()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup a hang-up is ignored, and stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, on_signal)
    try:
        err.print(f"Starting from {stack.data_dir} …", markup=False)
        stack.start()
    except Aborted:
        return 130
    except (StackError, OSError) as error:
        err.print(str(error), markup=False)
        return 1
    try:
        out.print(_table(stack))
        if timings:
            out.print(_timings(stack))
        with _followed(stack.processes() if verbose else []):
            stopped.wait()
        err.print("Stopping: edge, workers, services, stores …")
    finally:
        started = time.monotonic()
        stack.stop()
        err.print(
            f"Stopped in {time.monotonic() - started:.1f} s. Everything is kept in {stack.data_dir}", markup=False
        )
    return 0


def _check_settings() -> None:
    # Every child would refuse it too, one after the other.
    shared = {name: value for name, value in os.environ.items() if name not in CLIENT_VARIABLES}
    load(Settings, {"SEED_AGENTS_INTERNAL_KEY": "set by the stack".ljust(32), **shared})


def _table(stack: Stack) -> Table:
    program = _program()
    table = Table(
        title=f"Seed Agents serves at {stack.url}",
        caption=f"Logs: {_short(stack.data_dir / 'logs')}. Ctrl-C stops.\n"
        f"Next, in another terminal: {program} keys new",
        caption_justify="left",
        title_justify="left",
        title_style="bold",
    )
    for column in ("what", "pid", "address", "log"):
        table.add_column(column)
    for process in stack.processes():
        table.add_row(process.name, str(process.pid or "-"), process.address, process.command.log.name)
    given = {"postgres": stack.stores.postgres, "nats": stack.stores.nats, "valkey": stack.stores.valkey}
    for name in (name for name, process in given.items() if process is None):
        table.add_row(name, "-", "given by URL", "-")
    return table


def _program() -> str:
    """How this person can type the command's name."""
    program = Path(sys.argv[0])
    return program.name if shutil.which(program.name) == str(program) else _short(program)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _timings(stack: Stack) -> Table:
    table = Table(title="Start-up, seconds", title_justify="left")
    table.add_column("phase")
    table.add_column("s", justify="right")
    for phase, seconds in stack.timings.items():
        table.add_row(phase, f"{seconds:.2f}")
    return table


@contextmanager
def _followed(processes: list[ManagedProcess]) -> Iterator[None]:
    """Copy what the processes log to standard output, each line with its author's name, while inside."""
    done = threading.Event()
    followers = [threading.Thread(target=_follow, args=(process, done), daemon=True) for process in processes]
    for follower in followers:
        follower.start()
    try:
        yield
    finally:
        done.set()
        for follower in followers:
            follower.join()


def _follow(process: ManagedProcess, done: threading.Event) -> None:
    with process.command.log.open("r", errors="replace") as log:
        rest = ""
        while True:
            ending = done.is_set()
            rest += log.read()
            *lines, rest = rest.split("\n")
            for line in lines:
                sys.stdout.write(f"{process.name:<9}| {line}\n")
            sys.stdout.flush()
            if ending:
                return
            done.wait(0.2)
