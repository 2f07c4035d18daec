"""Free loopback ports."""

from __future__ import annotations

import random
import socket

# Below Linux's and above macOS's busiest registered ports, outside the ephemeral range (32768 and up on Linux): an
# outgoing connection of some other program cannot take a port between our choice and the child's bind.
_LOWEST, _HIGHEST = 20_000, 32_000


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports that nothing listens on now, on any IPv4 address. OSError when none is found."""
    held: list[socket.socket] = []
    try:
        for port in random.sample(range(_LOWEST, _HIGHEST), 2_000):
            if len(held) == count:
                break
            listener = socket.socket()
            try:
                listener.bind(("", port))
            except OSError:
                listener.close()
                continue
            held.append(listener)
        if len(held) < count:
            raise OSError(f"no {count} free ports between {_LOWEST} and {_HIGHEST}")
        return [listener.getsockname()[1] for listener in held]
    finally:
        for listener in held:
            listener.close()
