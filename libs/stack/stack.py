"""The whole system on one machine: stores, then migrations, then every service in its own process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from .errors import Aborted, Death, StackError, StartError
from .keys import Keys
from .layout import DATABASE_SERVICES
from .plan import places, plan
from .ports import free_ports
from .process import ManagedProcess
from .record import DataDirectoryLock, Record, end_leftovers, remove_record, write_record
from .stores import Stores, run_together

_KEPT_LOGS = 3


class Stack:
    """Start, watch and stop everything. Blocking methods; in async code use `async with`, or asyncio.to_thread.

    - `data_dir`: everything it keeps. `http_port`: the first edge's, 0 is any free one.
    - `edges`, `workers`: how many processes of each; further edges get free ports.
    - `env`: laid over this process's environment, and read like it (SEED_AGENTS_DATABASE_URL and so on).
    - `on_death(death)`: told of every child that ends by itself, from another thread.
    - `on_step(text)`: told what start() is at, for a person to read.

    Ports are chosen once, so a process or store that was killed comes back where it was.
    """

    def __init__(
        self,
        data_dir: Path | str,
        http_port: int = 0,
        *,
        edges: int = 1,
        workers: int = 1,
        env: Mapping[str, str] | None = None,
        on_death: Callable[[Death], None] | None = None,
        on_step: Callable[[str], None] | None = None,
        ready_timeout: float = 90.0,
    ) -> None:
        self.data_dir = Path(data_dir).resolve()
        self.timings: dict[str, float] = {}  # seconds, by phase
        self._env = {**os.environ, **(env or {})}
        self._http_port = http_port
        self._counts = {"edge": edges, "worker": workers}
        self._on_death = on_death
        self._on_step = on_step or (lambda _: None)
        self._ready_timeout = ready_timeout
        self._abort = threading.Event()
        self._hurry = False
        self._lock = DataDirectoryLock(self.data_dir)
        self._record: Record | None = None
        self._record_guard = threading.Lock()
        self._services: dict[tuple[str, int], ManagedProcess] = {}
        self._stop_groups: list[list[ManagedProcess]] = []
        self._stores: Stores | None = None
        self.urls: list[str] = []

    @property
    def url(self) -> str:
        """The first edge."""
        return self.urls[0]

    @property
    def stores(self) -> Stores:
        """The stores, after start(). StackError before."""
        if self._stores is None:
            raise StackError("The stack has not been started.")
        return self._stores

    @property
    def internal_key(self) -> str:
        """The HS256 key of internal tokens, after start()."""
        return self._started_record().internal_key

    @property
    def addresses(self) -> dict[str, str]:
        """host:port of every service's gRPC listener by process name, after start()."""
        return self._started_record().addresses

    def process(self, name: str, index: int = 0) -> ManagedProcess:
        """One service process: edge, worker, sessions, secrets or runs."""
        return self._services[name, index]

    def processes(self) -> list[ManagedProcess]:
        """Everything that was started here, stores first."""
        return [*(self._stores or []), *self._services.values()]

    def start(self) -> None:
        """Start everything; returns when all of it serves. On failure nothing is left running.

        AlreadyRunning, StartError, Aborted, StackError.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        self._abort.clear()
        started = time.monotonic()
        try:
            if left := end_leftovers(self.data_dir):
                self._on_step(f"Ended what an earlier run left behind: {', '.join(left)}")
            self._choose()
            self._phase("stores", lambda: self.stores.start(timeout=self._ready_timeout, abort=self._abort))
            self._write_record()
            self._phase("database", self._prepare_database)
            self._phase("services", self._start_services)
            self._started_record().ready = True
            self._write_record()
        except BaseException:
            self.stop()
            raise
        self.timings["total"] = time.monotonic() - started

    def stop(self) -> None:
        """Stop everything, whatever state it is in: edges, workers, the other services, then the stores."""
        self._abort.set()
        for group in self._stop_groups:
            run_together([partial(process.stop, self._grace()) for process in group])
        if self._stores is not None:
            self._stores.stop()
        with self._record_guard:
            if self._record is not None:
                remove_record(self.data_dir)
                self._record = None
        self._lock.release()

    def abort(self) -> None:
        """Make a start() that is under way give up. Callable from a signal handler."""
        self._abort.set()

    def hurry(self) -> None:
        """Do not wait for the services any more. The stores still stop cleanly, which takes them no time."""
        self._hurry = True
        for process in self._services.values():
            process.give_up()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.create_task(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Its thread would go on, and nobody would stop what it starts.
            self.abort()
            await asyncio.wait([starting])
            await asyncio.to_thread(self.stop)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _grace(self) -> float | None:
        return 0.0 if self._hurry else None

    def _started_record(self) -> Record:
        if self._record is None:
            raise StackError("The stack has not been started.")
        return self._record

    def _phase(self, name: str, run: Callable[[], None]) -> None:
        if self._abort.is_set():
            raise Aborted("Stopped while starting.")
        started = time.monotonic()
        run()
        self.timings[name] = time.monotonic() - started

    def _choose(self) -> None:
        """Everything that stays the same until the end: ports, keys, commands."""
        keys = Keys(self.data_dir)
        logs = self.data_dir / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
        _rotate(logs)
        if self._stores is None:
            self._choose_processes(keys, logs)
        stores = self.stores
        edges = [process for (name, _), process in self._services.items() if name == "edge"]
        self.urls = [f"http://{edge.address}" for edge in edges]
        self._record = Record(
            pid=os.getpid(),
            url=self.url,
            urls=self.urls,
            ready=False,
            database_url=stores.database_url,
            nats_url=stores.nats_url,
            redis_url=stores.redis_url,
            internal_key=self._given("INTERNAL_KEY") or keys.internal_key(),
            addresses={process.name: process.address for process in self._services.values() if process not in edges},
        )

    def _choose_processes(self, keys: Keys, logs: Path) -> None:
        where = places(self._counts)
        ports = free_ports(3 + len(where))
        self._stores = Stores(
            self.data_dir,
            keys,
            logs,
            database_url=self._given("DATABASE_URL"),
            nats_url=self._given("NATS_URL"),
            redis_url=self._given("REDIS_URL"),
            ports=ports[:3],
            on_death=self._on_death,
            on_start=self._write_record,
        )
        ports = ports[3:]
        if self._http_port:
            _require_free(self._http_port)
            ports[[kind.http for kind, _ in where].index(True)] = self._http_port
        groups: dict[int, list[ManagedProcess]] = {}
        for planned in plan(where, ports, self._env, self.data_dir, keys, self._stores):
            process = ManagedProcess(planned.command, self._on_death, self._write_record)
            self._services[planned.kind.name, planned.index] = process
            groups.setdefault(planned.kind.stop_first, []).append(process)
        self._stop_groups = [groups[order] for order in sorted(groups, reverse=True)]

    def _prepare_database(self) -> None:
        job = {
            "url": self.stores.database_url,
            "passwords": Keys(self.data_dir).role_passwords(DATABASE_SERVICES),
        }
        done = subprocess.run(
            [sys.executable, "-P", "-m", "libs.stack.prepare"],
            input=json.dumps(job),
            env=self._env,
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        if done.returncode != 0:
            raise StartError("database", "the roles or migrations failed", done.stderr.splitlines()[-20:])
        for line in done.stdout.splitlines():
            self._on_step(line)

    def _start_services(self) -> None:
        for process in self._services.values():
            process.start()
        run_together([partial(self._await_service, process) for process in self._services.values()], self._abort)

    def _await_service(self, process: ManagedProcess) -> None:
        started = time.monotonic()
        process.wait_ready(self._ready_timeout, abort=self._abort)
        self.timings[f"  {process.name}"] = time.monotonic() - started

    def _given(self, name: str) -> str | None:
        return self._env.get(f"SEED_AGENTS_{name}") or None

    def _write_record(self) -> None:
        with self._record_guard:
            if self._record is not None:
                write_record(self.data_dir, self._record, self.processes())


def _require_free(port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError as error:
            raise StackError(
                f"Port {port} cannot be had ({error.strerror}). Set SEED_AGENTS_HTTP_PORT to another, or to 0 for any."
            ) from None


def _rotate(logs: Path) -> None:
    for log in logs.glob("*.log"):
        for age in range(_KEPT_LOGS, 0, -1):
            older = log.with_name(f"{log.name}.{age}")
            newer = log if age == 1 else log.with_name(f"{log.name}.{age - 1}")
            if newer.exists():
                newer.replace(older)
