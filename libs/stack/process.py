"""One supervised child process: start, restart with back-off, stop, and what it last said."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .errors import Aborted, Death, StartError

_LAST_LINES = 20
_TAIL_BYTES = 16_384
_PROBE_EVERY = 0.03


@dataclass(slots=True)
class Backoff:
    """How long to wait before the next start: doubling, capped, and forgotten after a healthy while. Seconds."""

    first: float = 0.2
    limit: float = 10.0
    healthy_after: float = 30.0
    streak: int = 0

    def after(self, uptime: float) -> float:
        """Take note of a death after `uptime` seconds; returns the seconds to wait."""
        if uptime >= self.healthy_after:
            self.streak = 0
        self.streak += 1
        return min(self.limit, self.first * 2 ** min(self.streak - 1, 30))


@dataclass(frozen=True, slots=True)
class Command:
    """What to run and how to treat it."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    address: str = ""  # host:port, for people
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace: float = 15.0  # seconds from the stop signal to SIGKILL
    before_start: Callable[[], None] | None = None  # runs in the starting thread, at the first start only
    probe: Callable[[], bool] | None = None  # true once it serves
    backoff: Backoff = field(default_factory=Backoff)


class ManagedProcess:
    """A child in its own session and process group, so that Ctrl-C reaches only the supervisor. Thread-safe.

    It is restarted whenever it ends by itself, until `stop` or `kill`. Output goes straight to the log file: the child
    does not depend on this process being alive to write.
    """

    def __init__(
        self,
        command: Command,
        on_death: Callable[[Death], None] | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> None:
        self.command = command
        self.name = command.name
        self._on_death = on_death
        self._on_start = on_start
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._monitor: threading.Thread | None = None
        self._halt = threading.Event()
        self._started_at = 0.0
        self._log_start = 0
        self._prepared = False
        self.starts = 0
        self.last_death: Death | None = None

    @property
    def address(self) -> str:
        """host:port it serves on; empty when it serves nothing."""
        return self.command.address

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def start(self) -> None:
        """Start it, unless it runs. OSError when the command cannot be run."""
        with self._lock:
            if self._monitor is not None and self._monitor.is_alive():
                return
            if not self._prepared and self.command.before_start is not None:
                self.command.before_start()
            self._prepared = True
            self._halt = threading.Event()
            self._spawn()
            self._monitor = threading.Thread(target=self._watch, args=(self._halt,), name=self.name, daemon=True)
            self._monitor.start()

    def stop(self, grace: float | None = None) -> None:
        """Ask it to end, wait up to `grace` seconds (default: the command's), then kill it and what it started."""
        self._end(self.command.stop_signal, self.command.stop_grace if grace is None else grace)

    def kill(self) -> None:
        """SIGKILL, and stay down until `start`."""
        self._end(signal.SIGKILL, 10.0)

    def give_up(self) -> None:
        """SIGKILL and stay down, without waiting: for a stop() that takes too long."""
        with self._lock:
            self._halt.set()
            if self._process is not None:
                self._process.send_signal(signal.SIGKILL)

    def crash(self) -> None:
        """SIGKILL as if by accident: the supervisor restarts it."""
        with self._lock:
            if self._process is not None:
                self._process.send_signal(signal.SIGKILL)

    def restart(self, timeout: float = 30.0) -> None:
        """Stop it cleanly, start it at the same address, wait until it serves."""
        self.stop()
        self.start()
        self.wait_ready(timeout)

    def wait_ready(self, timeout: float = 60.0, *, abort: threading.Event | None = None, max_deaths: int = 3) -> None:
        """Return once the probe succeeds (without a probe: once it runs).

        StartError when it died `max_deaths` times meanwhile or the time (seconds) is over; Aborted when `abort` is set.
        """
        deadline = time.monotonic() + timeout
        starts_before = self.starts
        abort = abort or threading.Event()
        while True:
            if self.pid is not None and (self.command.probe is None or self.command.probe()):
                return
            death = self.last_death
            if death is not None and self.pid is None and self.starts - starts_before >= max_deaths - 1:
                raise StartError(self.name, death.describe(), death.last_lines)
            if self._halt.is_set():
                raise StartError(self.name, "it was stopped")
            if time.monotonic() > deadline:
                raise StartError(self.name, f"not ready after {timeout:.0f} s", self.last_lines())
            if abort.wait(_PROBE_EVERY):
                raise Aborted(f"{self.name}: start given up")

    def last_lines(self, count: int = _LAST_LINES) -> list[str]:
        """The last lines this life of the child wrote."""
        try:
            with self.command.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - _TAIL_BYTES))
                return log.read().decode("utf-8", "replace").splitlines()[-count:]
        except OSError:
            return []

    def _spawn(self) -> None:
        with self.command.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self.command.argv,
                env=self.command.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started_at = time.monotonic()
        self.starts += 1
        if self._on_start is not None:
            self._on_start()

    def _watch(self, halt: threading.Event) -> None:
        while True:
            process = self._process
            assert process is not None
            code = process.wait()
            _kill_group(process.pid)
            if halt.is_set():
                return
            uptime = time.monotonic() - self._started_at
            delay = self.command.backoff.after(uptime)
            death = Death(self.name, code, uptime, self.command.backoff.streak, delay, self.last_lines())
            self.last_death = death
            if self._on_death is not None:
                self._on_death(death)
            while True:
                if halt.wait(delay):
                    return
                with self._lock:
                    if halt.is_set():
                        return
                    try:
                        self._spawn()
                        break
                    except OSError:
                        delay = self.command.backoff.after(0.0)

    def _end(self, sig: signal.Signals, grace: float) -> None:
        with self._lock:
            self._halt.set()
            process, monitor = self._process, self._monitor
        if process is None or monitor is None:
            return
        process.send_signal(sig)
        monitor.join(grace)
        if monitor.is_alive():
            process.kill()
            monitor.join()


def _kill_group(pid: int) -> None:
    # What a dead leader leaves behind (PostgreSQL's backends, a worker's sandbox) would keep its ports and memory.
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
