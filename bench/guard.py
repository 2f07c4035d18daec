"""Nothing stays behind: the work runs in a session of its own, below a process that ends whatever it started."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psutil
import uvloop

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
ENDED = 143
"""Exit code of a work that was asked to end."""
_GRACE_S = 60
"""How long a work that was asked to end may take to stop its stack."""


def guarded(prefix: str, work: Callable[[Path], None]) -> None:
    """Run `work` with a temporary folder of its own; returns in its process only.

    Ctrl-C and SIGTERM ask it to end, a second one ends it. However it ends, killed or not, all processes that it
    started end too, those in sessions of their own included, and the folder goes. When this process is killed, the
    work is asked to end. Exits with the work's code.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    parent = os.getpid()
    # Processes whose parent is gone become this one's children, so they can be found.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _leave)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit(ENDED)
        try:
            work(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        code = _wait(child)
    finally:
        _end_all()
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(code)


def run(work: Coroutine[Any, Any, T]) -> T:
    """`uvloop.run` for a guarded work: asked to end, it is canceled. An exception of a signal handler may get lost."""

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return uvloop.run(main())
    except asyncio.CancelledError:
        sys.exit(ENDED)
    finally:
        signal.signal(signal.SIGTERM, _leave)


def _leave(*_: object) -> None:
    sys.exit(ENDED)


def _wait(child: int) -> int:
    asked = False

    def ask(*_: Any) -> None:
        nonlocal asked
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL if asked else signal.SIGTERM)
        asked = True
        signal.alarm(_GRACE_S)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, ask)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _end_all() -> None:
    # Children of what was killed arrive here only afterwards.
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _prctl(option: int, value: int) -> None:
    # Of Linux, like the /proc that the measurements read.
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")
