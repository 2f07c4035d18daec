"""Values that can be told from everything else, and the forms in which they might lie somewhere."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Marker:
    """A value that was handed to the system, by a name."""

    name: str
    value: bytes

    @property
    def text(self) -> str:
        """As text."""
        return self.value.decode()

    def forms(self) -> set[bytes]:
        """The value itself, in hex, and in base64 wherever it begins in what was encoded."""
        found = {self.value, self.value.hex().encode(), self.value.hex().upper().encode()}
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            for shift in range(3):
                encoded = encode(bytes(shift) + self.value).rstrip(b"=")
                found.add(encoded[(0, 2, 3)[shift] : -1])
        return found


def marker(name: str, prefix: str = "") -> Marker:
    """A fresh one."""
    return Marker(name, f"{prefix}{name.replace(' ', '')}{secrets.token_hex(12)}".encode())


def found_in(data: bytes, markers: Iterable[Marker]) -> set[str]:
    """Names of those that the data holds in any form."""
    return {m.name for m in markers if any(form in data for form in m.forms())}
