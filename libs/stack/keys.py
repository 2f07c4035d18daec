"""The secrets of one data directory: made at first use, kept in files that only their owner reads."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

from .layout import role_of


class Keys:
    """Passwords and keys below `<data>/keys` (directory 0700, files 0600)."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "keys"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def superuser_password(self) -> str:
        """The embedded PostgreSQL's superuser."""
        return self._text("postgres.password", _token)

    def role_passwords(self, services: Iterable[str]) -> dict[str, str]:
        """The password of each service's role, by role name."""
        return {role_of(service): self._text(f"{role_of(service)}.password", _token) for service in services}

    def nats_password(self) -> str:
        """The one user of the embedded NATS."""
        return self._text("nats.password", _token)

    def valkey_password(self) -> str:
        """The default user of the embedded Valkey."""
        return self._text("valkey.password", _token)

    def internal_key(self) -> str:
        """The HS256 key that the services sign their internal tokens with."""
        return self._text("internal.key", _token)

    def keyring_file(self) -> Path:
        """The key ring of the secrets service: {"primary": id, "keys": {id: base64 of 32 bytes}}."""
        self._text("keyring.json", _new_keyring)
        return self._folder / "keyring.json"

    def _text(self, name: str, make: Callable[[], str]) -> str:
        path = self._folder / name
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            write_private(path, make() + "\n")
            return path.read_text().strip()


def write_private(path: Path, text: str, *, sync: bool = True) -> None:
    """Write a file only its owner can read, whole or not at all; `sync`: and on the disk when this returns."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)


def _token() -> str:
    # 256 bits, and safe in a URL, a configuration file and a command.
    return secrets.token_hex(32)


def _new_keyring() -> str:
    return json.dumps({"primary": "k1", "keys": {"k1": base64.b64encode(secrets.token_bytes(32)).decode()}})
