"""Turn the layout into commands: which process, on which port, with which environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .keys import Keys
from .layout import DATABASE_SERVICES, SERVICE_PROCESSES, ServiceProcess, role_of, role_url
from .probes import grpc_ready, http_ready
from .process import Command
from .stores import Stores

PREFIX = "SEED_AGENTS_"

# Of the command line, not of a service: a service refuses a setting that nobody knows.
CLIENT_VARIABLES = (PREFIX + "URL", PREFIX + "KEY_FILE")

# Listening here, an edge is reached over loopback.
_ANYWHERE = {"", "0.0.0.0", "::", "localhost"}


@dataclass(frozen=True, slots=True)
class Planned:
    """One process to start: the how-manieth of its kind, and its command."""

    kind: ServiceProcess
    index: int
    command: Command


def places(counts: Mapping[str, int]) -> list[tuple[ServiceProcess, int]]:
    """Every process there is to be, `counts` of a name (default one)."""
    return [(kind, index) for kind in SERVICE_PROCESSES for index in range(counts.get(kind.name, 1))]


def plan(
    where: Sequence[tuple[ServiceProcess, int]],
    ports: Sequence[int],
    environ: Mapping[str, str],
    data_dir: Path,
    keys: Keys,
    stores: Stores,
) -> list[Planned]:
    """The commands of `where`, on `ports` in the same order, in `environ` laid under what the stack decides."""
    addresses = {
        kind.address_variable: f"127.0.0.1:{port}"
        for (kind, _), port in zip(where, ports, strict=True)
        if kind.address_variable
    }
    passwords = keys.role_passwords(DATABASE_SERVICES)
    planned: list[Planned] = []
    for position, ((kind, index), port) in enumerate(zip(where, ports, strict=True)):
        env = {**environ, **addresses}
        # The administrator's URL stays with the supervisor.
        for name in (PREFIX + "DATABASE_URL", *CLIENT_VARIABLES):
            env.pop(name, None)
        env[PREFIX + "NATS_URL"] = stores.nats_url
        env[PREFIX + "REDIS_URL"] = stores.redis_url
        env[PREFIX + "DATA_DIR"] = str(data_dir)
        env.setdefault(PREFIX + "BLOB_URL", str(data_dir / "blobs"))
        env.setdefault(PREFIX + "INTERNAL_KEY", keys.internal_key())
        env.setdefault(PREFIX + "ALLOW_PRIVATE_PROVIDERS", "true")
        # Fewer allocator arenas: a laptop's memory matters more than contention between few threads.
        env.setdefault("MALLOC_ARENA_MAX", "2")
        if (metrics := env.get(PREFIX + "METRICS_PORT", "0")) != "0" and metrics.isdigit():
            env[PREFIX + "METRICS_PORT"] = str(int(metrics) + position)
        if kind.database:
            role = role_of(kind.service)
            env[PREFIX + "DATABASE_URL"] = role_url(stores.database_url, role, passwords[role])
        if kind.key_ring and not any(env.get(f"{PREFIX}SECRETS_KEYRING{how}") for how in ("", "_FILE", "_COMMAND")):
            env[PREFIX + "SECRETS_KEYRING_FILE"] = str(keys.keyring_file())
        host = "127.0.0.1"
        if kind.http:
            env[PREFIX + "HTTP_PORT"] = str(port)
            if (hostname := env.get(PREFIX + "HTTP_HOSTNAME", "")) not in _ANYWHERE:
                host = hostname
        else:
            env[PREFIX + "GRPC_PORT"] = str(port)
        name = kind.name if index == 0 else f"{kind.name}-{index}"
        command = Command(
            name=name,
            # -P: a folder named `services` where the user happens to be must not win.
            argv=[sys.executable, "-P", "-m", f"services.{kind.service}", *kind.arguments],
            env=env,
            log=data_dir / "logs" / f"{name}.log",
            address=f"{host}:{port}",
            probe=partial(http_ready, host, port, "/api/health") if kind.http else partial(grpc_ready, port),
        )
        planned.append(Planned(kind, index, command))
    return planned
