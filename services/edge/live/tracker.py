"""Which sockets are open, for whom, from where, and whether they still answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

from services.edge import metrics


class TrackedSocket(Protocol):
    """What the tracker needs of a socket."""

    def silent_s(self) -> float:
        """Seconds since it last sent or took something."""
        ...

    def ping(self) -> None:
        """Ask it for a sign of life."""
        ...

    def close(self, code: int, reason: str, cause: str) -> None:
        """Begin to close it."""
        ...


class Tracker:
    """All open sockets. Limits: sockets of one account and from one address; seconds of silence."""

    def __init__(self, *, per_account: int, per_address: int, ping_s: float, pong_s: float) -> None:
        self._per_account, self._per_address = per_account, per_address
        self._ping_s, self._pong_s = ping_s, pong_s
        self._open: dict[TrackedSocket, str] = {}
        self._bound: dict[TrackedSocket, str] = {}
        self._addresses: Counter[str] = Counter()
        self._accounts: Counter[str] = Counter()
        self._pinged: set[TrackedSocket] = set()

    def full(self, address: str) -> bool:
        """Whether an address has all the sockets it may."""
        return self._addresses[address] >= self._per_address

    def full_account(self, account: str) -> bool:
        """Whether an account has all the sockets it may."""
        return self._accounts[account] >= self._per_account

    def enter(self, socket: TrackedSocket, address: str) -> None:
        """A socket was opened."""
        self._open[socket] = address
        self._addresses[address] += 1
        metrics.SOCKETS.inc()

    def bind(self, socket: TrackedSocket, account: str) -> None:
        """A socket belongs to an account from now on."""
        if socket not in self._bound:
            self._bound[socket] = account
            self._accounts[account] += 1

    def unbind(self, socket: TrackedSocket) -> None:
        """It belongs to no account after all."""
        account = self._bound.pop(socket, None)
        if account is not None:
            _less(self._accounts, account)

    def exit(self, socket: TrackedSocket) -> None:
        """A socket is closed."""
        self._pinged.discard(socket)
        self.unbind(socket)
        _less(self._addresses, self._open.pop(socket))
        metrics.SOCKETS.dec()

    async def keep_alive(self) -> None:
        """Ping silent sockets and close those that do not answer; never returns."""
        pause = max(0.02, min(1.0, self._ping_s / 4, self._pong_s / 4))
        while True:
            await asyncio.sleep(pause)
            for socket in list(self._open):
                silent = socket.silent_s()
                if silent < self._ping_s:
                    self._pinged.discard(socket)
                elif socket not in self._pinged:
                    self._pinged.add(socket)
                    socket.ping()
                elif silent >= self._ping_s + self._pong_s:
                    socket.close(1011, "No answer to a ping", "silent")

    def close_all(self, code: int, reason: str) -> None:
        """Close every socket."""
        for socket in list(self._open):
            socket.close(code, reason, "shutdown")


def _less(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
