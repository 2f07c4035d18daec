"""How the commands of `seed-agents ops` reach a service: over its internal listener, as `ops`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from libs.rpc import Peer

IDENTITY = "ops"
CALL_SECONDS = 30.0

DataDirectory = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        envvar="SEED_AGENTS_DATA_DIR",
        help="Of the running server. Not read when SEED_AGENTS_INTERNAL_KEY and the service's address are set.",
    ),
]


def shown(text: str) -> str:
    """Text that an account chose, fit for a terminal."""
    # Nothing of it may move the cursor.
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def time_of(at_ms: int) -> str:
    """A time in Unix milliseconds, as ISO 8601."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@asynccontextmanager
async def _peer(service: str, data_dir: Path) -> AsyncIterator[Peer]:
    from libs.rpc import Peer, TokenSigner

    from .record import read_record

    key = os.environ.get("SEED_AGENTS_INTERNAL_KEY")
    address = os.environ.get(f"SEED_AGENTS_{service.upper()}_ADDR")
    if not (key and address):
        record = read_record(data_dir)
        if record is None:
            fail(f"No server runs from {data_dir}. Set --data-dir, or SEED_AGENTS_INTERNAL_KEY and the address.")
        key, address = record["internal_key"], record["addresses"][service]
    peer = Peer(service, address, TokenSigner(IDENTITY, key))
    try:
        yield peer
    finally:
        await peer.close()


def with_service(service: str, data_dir: Path, work: Callable[[Peer], Awaitable[None]]) -> None:
    """Do `work` with a channel to a service; ends the command when the service refuses."""
    from libs.errors import SeedError

    async def run() -> None:
        async with _peer(service, data_dir) as peer:
            await work(peer)

    try:
        asyncio.run(run())
    except SeedError as e:
        fail(e.message)


def fail(message: str) -> NoReturn:
    """End the command with a message."""
    typer.echo(message, err=True)
    raise typer.Exit(1)
