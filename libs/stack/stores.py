"""The three stores: embedded ones for whichever is not given by URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

from .errors import Death
from .keys import Keys
from .nats import USER, nats_command
from .ports import free_ports
from .postgres import DATABASE, SUPERUSER, postgres_command
from .process import ManagedProcess
from .valkey import valkey_command


class Stores:
    """PostgreSQL, NATS and Valkey. `postgres`, `nats` and `valkey` are None where a URL was given.

    Ports (`ports`: three that are free; default: any) stay for its life, so that a restarted store is found again.
    """

    def __init__(
        self,
        data_dir: Path,
        keys: Keys,
        logs: Path,
        *,
        database_url: str | None = None,
        nats_url: str | None = None,
        redis_url: str | None = None,
        ports: Sequence[int] | None = None,
        on_death: Callable[[Death], None] | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> None:
        self.postgres: ManagedProcess | None = None
        self.nats: ManagedProcess | None = None
        self.valkey: ManagedProcess | None = None
        free = iter(ports or free_ports(3))
        if database_url is None:
            port, password = next(free), keys.superuser_password()
            command = postgres_command(data_dir, logs / "postgres.log", port, password)
            self.postgres = ManagedProcess(command, on_death, on_start)
            database_url = f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{port}/{DATABASE}"
        if nats_url is None:
            port, password = next(free), keys.nats_password()
            self.nats = ManagedProcess(nats_command(data_dir, logs / "nats.log", port, password), on_death, on_start)
            nats_url = f"nats://{USER}:{password}@127.0.0.1:{port}"
        if redis_url is None:
            port, password = next(free), keys.valkey_password()
            self.valkey = ManagedProcess(
                valkey_command(data_dir, logs / "valkey.log", port, password), on_death, on_start
            )
            redis_url = f"redis://:{password}@127.0.0.1:{port}/0"
        self.database_url = database_url  # a role that may create roles
        self.nats_url = nats_url
        self.redis_url = redis_url

    def __iter__(self) -> Iterator[ManagedProcess]:
        return (store for store in (self.postgres, self.nats, self.valkey) if store is not None)

    def start(self, *, timeout: float = 60.0, abort: Event | None = None) -> None:
        """Start the embedded ones together and wait for them. StackError when one cannot; then none is left running."""
        try:
            run_together([partial(_start, store, timeout, abort) for store in self], abort)
        except BaseException:
            self.stop()
            raise

    def stop(self, grace: float | None = None) -> None:
        """Stop the embedded ones together, cleanly."""
        run_together([partial(store.stop, grace) for store in self])


def run_together(tasks: list[Callable[[], None]], abort: Event | None = None) -> None:
    """Run all at once and wait for all; the first failure sets `abort`, so that the others give up, and is raised."""
    if not tasks:
        return
    failures: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed to the caller below
            failures.append(error)
            if abort is not None:
                abort.set()

    with ThreadPoolExecutor(len(tasks)) as pool:
        try:
            list(pool.map(run, tasks))
        except BaseException:
            if abort is not None:
                abort.set()
            raise
    if failures:
        raise failures[0]


def _start(store: ManagedProcess, timeout: float, abort: Event | None) -> None:
    store.start()
    store.wait_ready(timeout, abort=abort)
