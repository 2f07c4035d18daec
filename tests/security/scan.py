"""The secret scan of a whole test run: every system that a test started is searched when it stops.

Nothing has to be done in a test. `watch()` makes all stores, with or without the services on them, dump what they hold
before they stop, and reads the logs after that. What the tests' processes printed themselves is searched too, and what
their spans said (`tests.security.spans`). The run fails when something is found, and names the place, not the value.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import asyncpg
import redis

from libs.stack import Stack
from libs.stack.keys import Keys
from libs.stack.layout import DATABASE_SERVICES, SERVICE_PROCESSES
from libs.stack.stores import Stores
from tests.security.collected import Collected
from tests.security.markers import Marker
from tests.security.places import KEPT

METRICS_PORT = "SEED_AGENTS_METRICS_PORT"
_SEARCHED = ("text", "bytea", "jsonb", "json", "ARRAY", "character varying")
_PATIENCE_S = 20.0


class Scan:
    """What was searched, and what was found where it must not be."""

    def __init__(self, collected: Collected) -> None:
        self.collected = collected
        self.found: set[str] = set()
        self.systems = self.bytes = 0
        self.seconds = 0.0
        self._lock = threading.Lock()

    def search(
        self, system: str, place: str, data: bytes, *, conversation: bool = False, more: Iterable[Marker] = ()
    ) -> None:
        """Note what a place holds. `conversation`: what people write may lie there."""
        # A binary copy of nothing is a head and an end.
        if len(data) < 24:
            return
        secrets, texts = self.collected.take()
        names = {m.name for m in (*secrets, *more) if any(form in data for form in _forms(m))}
        if not conversation:
            # Others than secrets are written as they are, wherever they are written.
            names |= {m.name for m in texts if m.value in data or _escaped(m.value) in data}
        with self._lock:
            self.bytes += len(data)
            self.found |= {f"{name} in {place} of {system}" for name in names}

    def watch(self) -> Callable[[], None]:
        """Search whatever is started from now on; returns what ends it."""
        scan = self
        make, stop, chosen, stop_all = Stores.__init__, Stores.stop, Stack._choose_processes, Stack.stop

        def made(stores: Stores, data_dir: Path, keys: Keys, logs: Path, **more: Any) -> None:
            make(stores, data_dir, keys, logs, **more)
            stores.__dict__["scanned"] = (Path(data_dir), Path(logs))

        def stopped(stores: Stores, grace: float | None = None) -> None:
            scan._timed(partial(scan._held, stores))
            stop(stores, grace)
            scan._timed(partial(scan._written, stores))

        def choose(stack: Stack, keys: Keys, logs: Path) -> None:
            # Each process shows its metrics on a port of its own, from this one on.
            if METRICS_PORT not in stack._env:
                count = sum(stack._counts.get(kind.name, 1) for kind in SERVICE_PROCESSES)
                stack._env[METRICS_PORT] = str(_ports_in_a_row(count))
            chosen(stack, keys, logs)

        def all_stopped(stack: Stack) -> None:
            scan._timed(partial(scan._shown, stack))
            stop_all(stack)

        Stores.__init__, Stores.stop, Stack._choose_processes, Stack.stop = made, stopped, choose, all_stopped

        def end() -> None:
            Stores.__init__, Stores.stop, Stack._choose_processes, Stack.stop = make, stop, chosen, stop_all

        return end

    def summary(self) -> str:
        """One line for the end of the run."""
        size = f"{self.systems} systems, {self.bytes / 1e6:.1f} MB, {self.seconds:.1f} s"
        return f"secret scan: {size}: " + (f"{len(self.found)} FOUND" if self.found else "nothing found")

    def _timed(self, work: Callable[[], None]) -> None:
        started = time.monotonic()
        # Stacks are stopped from threads with and without a loop: none of them can run another.
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(_PATIENCE_S)
        with self._lock:
            self.seconds += time.monotonic() - started

    def _shown(self, stack: Stack) -> None:
        """The metrics of the processes that run."""
        first = int(stack._env.get(METRICS_PORT, "0"))
        for n in range(len(stack._services) if first else 0):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{first + n}/metrics", timeout=2) as answer:
                    self.search(stack.data_dir.parent.name, "metrics", answer.read())
            except OSError:
                continue

    def _held(self, stores: Stores) -> None:
        """What the stores hold, those that run."""
        data_dir, _ = stores.__dict__["scanned"]
        if stores.postgres is not None and stores.postgres.pid:
            asyncio.run(self._database(stores, data_dir))
        if stores.valkey is not None and stores.valkey.pid:
            self._valkey(stores, data_dir)

    async def _database(self, stores: Stores, data_dir: Path) -> None:
        try:
            connection = await asyncpg.connect(stores.database_url, timeout=5, command_timeout=15)
        except (OSError, asyncpg.PostgresError, TimeoutError):
            return
        columns = await connection.fetch(
            "select table_schema s, table_name t, column_name c from information_schema.columns join "
            "information_schema.tables using (table_schema, table_name) where table_type = 'BASE TABLE' and "
            "table_schema not in ('pg_catalog', 'information_schema') and data_type = any($1::text[])",
            list(_SEARCHED),
        )
        house = _house(data_dir)
        try:
            for s, t, c in columns:
                parts: list[bytes] = []

                async def take(data: bytes, parts: list[bytes] = parts) -> None:
                    parts.append(data)

                query = f'select "{c}" from "{s}"."{t}" where "{c}" is not null'
                await connection.copy_from_query(query, output=take, format="binary")
                place = f"table {s}.{t}.{c}"
                kept = place in KEPT or s not in DATABASE_SERVICES
                self.search(data_dir.parent.name, place, b"".join(parts), conversation=kept, more=house)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            return
        finally:
            connection.terminate()

    def _valkey(self, stores: Stores, data_dir: Path) -> None:
        store: Any = redis.Redis.from_url(stores.redis_url, socket_timeout=5)
        try:
            keys = list(store.scan_iter(count=1000))
            strings = [key for key in keys if store.type(key) == b"string"]
            held = b"\n".join(value or b"" for value in (store.mget(strings) if strings else ()))
        except redis.RedisError:
            return
        finally:
            store.close()
        # Text in flight is kept there for a while.
        self.search(data_dir.parent.name, "valkey", held, conversation=True, more=_house(data_dir))

    def _written(self, stores: Stores) -> None:
        """The logs, of the stores and of what ran on them, and the files of NATS."""
        data_dir, logs = stores.__dict__["scanned"]
        with self._lock:
            self.systems += 1
        house = _house(data_dir)
        for path in logs.glob("*.log*") if logs.is_dir() else ():
            self.search(data_dir.parent.name, f"log {path.name}", path.read_bytes(), more=house)
        for path in (data_dir / "nats").rglob("*") if (data_dir / "nats").is_dir() else ():
            if path.is_file() and path.name != "server.conf":
                self.search(data_dir.parent.name, f"nats {path.name}", path.read_bytes(), more=house)


@lru_cache(maxsize=4096)
def _forms(marker: Marker) -> tuple[bytes, ...]:
    return tuple(marker.forms())


@lru_cache(maxsize=4096)
def _escaped(value: bytes) -> bytes:
    """As it looks inside JSON."""
    return json.dumps(value.decode("utf-8", "replace")).encode()[1:-1]


def _house(data_dir: Path) -> list[Marker]:
    """The keys of the system itself."""
    folder = data_dir / "keys"
    if not folder.is_dir():
        return []
    files = [path for path in folder.iterdir() if path.suffix in (".password", ".key")]
    return [Marker(f"the {path.stem} key", path.read_bytes().strip()) for path in files]


def _ports_in_a_row(count: int) -> int:
    """The first of some free ports, apart from those that stacks and the system choose from."""
    first = 10_000 + os.getpid() % 90 * 100
    for start in (*range(first, 19_900, count), *range(10_000, first, count)):
        if all(_free(port) for port in range(start, start + count)):
            return start
    raise AssertionError(f"no {count} ports in a row are free")


def _free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
