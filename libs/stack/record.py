"""Who serves from a data directory: a lock for as long as it lives, and a record for tools and for the next start."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .errors import AlreadyRunning
from .keys import write_private
from .process import ManagedProcess


@dataclass(slots=True)
class Record:
    """`<data>/stack.json`. It holds the stores' passwords, so only its owner reads it."""

    pid: int
    url: str
    urls: list[str]
    ready: bool
    database_url: str
    nats_url: str
    redis_url: str
    internal_key: str
    addresses: dict[str, str]  # the services' gRPC listeners, by process name
    processes: list[dict[str, Any]] = field(default_factory=list)  # name, pid, started (for leftovers), address, log


class DataDirectoryLock:
    """The kernel's lock on `<data>/stack.lock`: gone with the process, however that ends."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file: Any = None

    def acquire(self) -> None:
        """AlreadyRunning, with the other's pid and URL, when another process holds it."""
        file = (self._data_dir / "stack.lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            record = read_record(self._data_dir)
            raise AlreadyRunning(
                str(self._data_dir), int(holder) if holder.isdigit() else None, record.get("url") if record else None
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let the next one in."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_record(data_dir: Path) -> dict[str, Any] | None:
    """What the stack on this data directory last wrote about itself, or None."""
    try:
        return json.loads((data_dir / "stack.json").read_text())
    except (OSError, ValueError):
        return None


def write_record(data_dir: Path, record: Record, processes: Iterable[ManagedProcess]) -> None:
    """Replace `<data>/stack.json`."""
    import psutil

    record.processes = []
    for process in processes:
        pid, started = process.pid, None
        if pid is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                started = psutil.Process(pid).create_time()
        record.processes.append(
            {
                "name": process.name,
                "pid": pid,
                "started": started,
                "address": process.address,
                "log": str(process.command.log),
                "stop_signal": int(process.command.stop_signal),
            }
        )
    write_private(data_dir / "stack.json", json.dumps(asdict(record), indent=1), sync=False)


def remove_record(data_dir: Path) -> None:
    """Nothing runs here any more."""
    (data_dir / "stack.json").unlink(missing_ok=True)


def end_leftovers(data_dir: Path, grace: float = 15.0) -> list[str]:
    """End what a killed supervisor left running, after the lock is ours; returns the names.

    A process counts as ours only if its pid and its start time are those of the record.
    """
    record = read_record(data_dir)
    if record is None:
        return []
    import psutil

    found: list[tuple[str, Any]] = []
    for entry in record.get("processes", []):
        if not entry.get("pid"):
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(entry["pid"])
            if process.create_time() == entry["started"]:
                process.send_signal(entry["stop_signal"])
                found.append((entry["name"], process))
    _, alive = psutil.wait_procs([process for _, process in found], timeout=grace)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=grace)
    remove_record(data_dir)
    return [name for name, _ in found]
