"""The command `seed-agents`. Every command imports what it needs when it runs, so that the others start fast."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="A server for the Seed Agents API, and a client for it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_OWN_COMMANDS = {"up", "migrate", "demo"}
_OPS = "ops"

DataDirectory = Annotated[
    Path, typer.Option("--data-dir", envvar="SEED_AGENTS_DATA_DIR", help="Where everything is kept.")
]


@app.command()
def up(
    data_dir: DataDirectory = Path("data"),
    http_port: Annotated[
        int, typer.Option("--port", envvar="SEED_AGENTS_HTTP_PORT", min=0, max=65535, help="0 is any free one.")
    ] = 3050,
    edges: Annotated[int, typer.Option(min=1, help="Edge processes; each further one on a free port.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    timings: Annotated[bool, typer.Option("--timings", help="Print how long each phase of the start took.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print what the processes log.")] = False,
) -> None:
    """Start the stores and every service on this machine, and serve until Ctrl-C."""
    from .up import up as run

    raise typer.Exit(run(data_dir, http_port, edges=edges, workers=workers, timings=timings, verbose=verbose))


@app.command()
def migrate(
    data_dir: DataDirectory = Path("data"),
    service: Annotated[
        str | None,
        typer.Option(help="Only this service's migrations, with SEED_AGENTS_DATABASE_URL as its own role's URL."),
    ] = None,
) -> None:
    """Make the database ready: roles, schemas and migrations of every service (`up` does it by itself)."""
    from .errors import StackError
    from .migrate import migrate as run

    try:
        for line in run(data_dir, os.environ.get("SEED_AGENTS_DATABASE_URL") or None, service):
            typer.echo(line)
    except (StackError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command()
def demo(
    url: Annotated[
        str | None,
        typer.Option(envvar="SEED_AGENTS_URL", help="Default: the running server, else one of its own for the moment."),
    ] = None,
) -> None:
    """A first conversation with a scripted model: every step, and the tokens as they arrive."""
    import asyncio

    from rich.console import Console

    from .demo import demo as run

    raise typer.Exit(asyncio.run(run(url, Console(highlight=False))))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in (_OPS, "--help"):
        from .ops_cli import app as ops

        app.add_typer(ops, name=_OPS)
    if not arguments or arguments[0] not in {*_OWN_COMMANDS, _OPS}:
        from libs.client.cli import app as client

        app.add_typer(client)
    return app(arguments, prog_name="seed-agents", standalone_mode=True) or 0
