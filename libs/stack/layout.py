"""What the stack consists of. A new service is one more line here."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """One kind of process of a service."""

    name: str  # as printed, and the log file's name
    service: str  # folder below services/
    arguments: tuple[str, ...] = ()  # after `python -m services.<service>`
    database: bool = True  # gets the URL of the service's own role
    address_variable: str = ""  # where the other processes read this one's host:port
    key_ring: bool = False  # gets the secrets' key ring
    http: bool = False  # serves HTTP instead of gRPC
    stop_first: int = 0  # order of stopping: highest first


SERVICE_PROCESSES = (
    ServiceProcess("secrets", "secrets", address_variable="SEED_AGENTS_SECRETS_ADDR", key_ring=True),
    ServiceProcess("sessions", "sessions", address_variable="SEED_AGENTS_SESSIONS_ADDR"),
    ServiceProcess("memory", "memory", address_variable="SEED_AGENTS_MEMORY_ADDR"),
    ServiceProcess("runs", "runs", ("api",), address_variable="SEED_AGENTS_RUNS_ADDR"),
    ServiceProcess("worker", "runs", ("worker",), stop_first=1),
    ServiceProcess("triggers", "triggers", ("all",), address_variable="SEED_AGENTS_TRIGGERS_ADDR", stop_first=1),
    ServiceProcess("edge", "edge", database=False, http=True, stop_first=2),
)

# Every service with tables: its schema has its name, its role is seed_<name>.
DATABASE_SERVICES = tuple(sorted({p.service for p in SERVICE_PROCESSES if p.database}))


def role_of(service: str) -> str:
    """The PostgreSQL role that owns the service's schema, and nothing else."""
    return f"seed_{service}"


def role_url(url: str, role: str, password: str) -> str:
    """The administrator's URL with the role's name and password in their place."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(role)}:{quote(password)}@{hosts}"))
