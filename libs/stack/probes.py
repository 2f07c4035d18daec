"""Is it serving? One cheap question a kind of child; every probe answers within a second and never raises."""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path
from typing import Any

_TIMEOUT = 1.0


def postgres_ready(pgdata: Path) -> bool:
    """Whether the postmaster says in its own pid file that it takes connections (what pg_ctl -w looks at)."""
    try:
        lines = (pgdata / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    if len(lines) < 8 or lines[7].strip() != "ready":
        return False
    try:
        # A killed postmaster leaves the file behind as it was.
        os.kill(int(lines[0]), 0)
    except (OSError, ValueError):
        return False
    return True


def nats_ready(port: int) -> bool:
    """Whether a NATS server greets at this loopback port, with JetStream on."""
    greeting = _talk(port, b"")
    return greeting.startswith(b"INFO") and b'"jetstream":true' in greeting


def valkey_ready(port: int, password: str) -> bool:
    """Whether Valkey takes the password and answers a ping at this loopback port."""
    answer = _talk(port, b"AUTH " + password.encode() + b"\r\nPING\r\n", until=b"PONG")
    return b"+PONG" in answer


def http_ready(host: str, port: int, path: str) -> bool:
    """Whether GET `path` there answers 200."""
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def grpc_ready(port: int) -> bool:
    """Whether the server at this loopback port says SERVING over grpc.health.v1."""
    # A channel that failed once waits before it connects again, so the port is asked first.
    try:
        socket.create_connection(("127.0.0.1", port), _TIMEOUT).close()
    except OSError:
        return False
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT)
        except grpc.RpcError:
            return False
    return answer.status == health_pb2.HealthCheckResponse.SERVING


def _talk(port: int, message: bytes, until: bytes = b"\r\n") -> bytes:
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), _TIMEOUT) as connection:
            connection.settimeout(_TIMEOUT)
            connection.sendall(message)
            while until not in received and len(received) < 65_536:
                chunk = connection.recv(4096)
                if not chunk:
                    break
                received += chunk
    except OSError:
        pass
    return received
