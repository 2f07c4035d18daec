"""What can go wrong while the embedded stack starts, each with what a person needs to act on it."""

from __future__ import annotations

from dataclasses import dataclass, field


class StackError(Exception):
    """Base of everything libs.stack raises. The message is meant to be printed."""


@dataclass(frozen=True, slots=True)
class Death:
    """One end of a child process that nobody asked for."""

    name: str
    exit_code: int  # negative: the signal that killed it
    uptime: float  # seconds
    streak: int  # deaths in a row without a healthy while between them, this one included
    retry_in: float  # seconds until the next start
    last_lines: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """One line: who, how, after how long."""
        how = f"was killed by signal {-self.exit_code}" if self.exit_code < 0 else f"exited with code {self.exit_code}"
        return f"{self.name} {how} after {self.uptime:.1f} s"


class StartError(StackError):
    """A child died, or was not ready in time, while the stack was starting."""

    def __init__(self, name: str, reason: str, last_lines: list[str] | None = None) -> None:
        self.name = name
        self.last_lines = last_lines or []
        super().__init__("\n".join([f"{name} did not start: {reason}", *(f"  | {line}" for line in self.last_lines)]))


class Aborted(StackError):
    """The stack was told to stop while it was starting."""


class AlreadyRunning(StackError):
    """Another process serves from this data directory."""

    def __init__(self, data_dir: str, pid: int | None, url: str | None) -> None:
        self.pid = pid
        self.url = url
        where = f" at {url}" if url else ""
        who = f" (pid {pid})" if pid else ""
        super().__init__(
            f"Already serving from {data_dir}{where}{who}. "
            "Stop it first, or set SEED_AGENTS_DATA_DIR and SEED_AGENTS_HTTP_PORT for a second one."
        )
