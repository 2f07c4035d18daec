"""One key one socket watches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from services.edge.domain.audience import Standing
from services.edge.domain.frames import Frame
from services.edge.domain.run_stream import RunStream
from services.edge.domain.session_stream import SessionStream


class Socket(Protocol):
    """What a subscription needs of a socket."""

    account: str
    """Account it belongs to; empty before its first subscription holds."""
    subscriptions: dict[str, Subscription]
    """Keys it watches."""

    def send(self, frame: Frame) -> None:
        """Send soon, in order; a socket that is too slow drops, coalesces or closes."""
        ...

    def roomy(self) -> bool:
        """Whether nothing much waits for it."""
        ...

    async def send_all(self, frames: Iterable[Frame]) -> None:
        """Send a replay as fast as the socket takes it."""
        ...


class Subscription:
    """A key of a socket. `ident` is the id in the key; `standing` is None for the account key."""

    __slots__ = ("account", "alive", "busy", "ident", "key", "kind", "runs", "session", "socket", "standing")

    def __init__(
        self, socket: Socket, account: str, key: str, kind: str, ident: str, standing: Standing | None = None
    ) -> None:
        self.socket, self.account, self.key, self.kind, self.ident = socket, account, key, kind, ident
        self.standing = standing
        self.session: SessionStream | None = None
        self.runs: RunStream | None = None
        self.alive = True
        self.busy = False
        """Whether a load of its own is under way; shared loads leave it out."""

    def end(self) -> None:
        """Nothing is sent for it any more."""
        self.alive = False
