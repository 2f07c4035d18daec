"""The commands that talk to a server: `keys`, `call`, `chat`, `watch`; `libs.stack.cli` mounts them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from .server import URL_VARIABLE

if TYPE_CHECKING:
    from .client import Client

_AWAY_S = 3.0

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
keys = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The key that signs your requests.")
app.add_typer(keys, name="keys")

KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", envvar="SEED_AGENTS_KEY_FILE", help="Default: ~/.config/seed-agents/key.json"),
]
Url = Annotated[
    str | None,
    typer.Option("--url", envvar=URL_VARIABLE, help="Default: the server of the data directory, else port 3050."),
]
Account = Annotated[
    str | None, typer.Option("--account", help="Act for another account, which must have authorized your key.")
]


@keys.command("new")
def keys_new(
    key_file: KeyFile = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite a key that is there.")] = False,
) -> None:
    """Make a key and print the account it owns."""
    from libs.wire import Key

    from .errors import ClientError
    from .keys import save_key

    key = Key.generate()
    try:
        path = save_key(key, key_file, replace=replace)
    except (ClientError, OSError) as e:
        _fail(str(e))
    typer.echo(f"account  {key.id}")
    typer.echo(f"key file {path}   (whoever has it is you: keep it, and keep it to yourself)")


@keys.command("show")
def keys_show(key_file: KeyFile = None) -> None:
    """Print the account of your key."""
    from .errors import ClientError
    from .keys import default_key_path, load_key

    try:
        typer.echo(f"account  {load_key(key_file).id}")
    except ClientError as e:
        _fail(str(e))
    typer.echo(f"key file {key_file or default_key_path()}")


@app.command()
def call(
    action: Annotated[str, typer.Argument(help="An action of the API, for instance ListAgents.")],
    fields: Annotated[
        str, typer.Argument(help='Its fields as DAG-JSON; bytes are {"/": {"bytes": "<base64>"}}; - reads stdin.')
    ] = "{}",
    url: Url = None,
    key_file: KeyFile = None,
    account: Account = None,
) -> None:
    """Sign an action, send it, print the answer as DAG-JSON."""
    from . import dagjson

    try:
        values = dagjson.loads(sys.stdin.read() if fields == "-" else fields)
    except ValueError as e:
        _fail(f"The fields are not DAG-JSON: {e}")
    if not isinstance(values, dict):
        _fail('The fields must be an object, for instance {"agentId": "…"}')

    async def send() -> None:
        from .errors import ApiError

        async with _client(url, key_file, account) as client:
            try:
                answer = await client.send({**values, "_": action})
            except ApiError as e:
                _fail(f"{action}: {e.status} {e.message}{_hint(action)}")
            typer.echo(dagjson.dumps(answer))

    _run(send())


@app.command()
def chat(
    agent: Annotated[str, typer.Argument(help="Id or name of an agent.")],
    session: Annotated[str | None, typer.Option("--session", help="Go on with this session.")] = None,
    url: Url = None,
    key_file: KeyFile = None,
    account: Account = None,
) -> None:
    """Talk with an agent; its answers stream. Ctrl-C stops a turn, Ctrl-D ends the conversation."""

    async def talk() -> None:
        from .terminal import Chat

        async with _client(url, key_file, account) as client:
            await Chat(client).run(agent, session)

    _run(talk())


@app.command()
def watch(
    key: Annotated[
        str, typer.Argument(help="account/<id>, agents/<id>, sessions/<id> or runs/<id>; `account` is yours.")
    ],
    after_seq: Annotated[int | None, typer.Option("--after", min=0, help="Only durable events after this one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON event a line, as the server sends them.")] = False,
    url: Url = None,
    key_file: KeyFile = None,
    account: Account = None,
) -> None:
    """Subscribe and print the events until Ctrl-C."""

    async def follow() -> None:
        from .terminal import watch as follow_key

        async with _client(url, key_file, account) as client:
            await follow_key(client, f"account/{client.account}" if key == "account" else key, after_seq, as_json)

    _run(follow())


def _client(url: str | None, key_file: Path | None, account: str | None) -> Client:
    from libs.wire import PrincipalError

    from .client import Client
    from .keys import load_key
    from .server import default_url

    try:
        return Client(url or default_url(), load_key(key_file), account, away_s=_AWAY_S)
    except PrincipalError:
        _fail(f"{account} is not an account id")


def _run(work: Coroutine[Any, Any, None]) -> None:
    from .errors import ApiError, ClientError, ConnectionLost

    try:
        asyncio.run(work)
    except ApiError as e:
        _fail(f"{e.status} {e.message}")
    except ConnectionLost as e:
        _fail(f"{e}\nIs the server running? Start one with `seed-agents up`, or say where it is with --url.")
    except ClientError as e:
        _fail(str(e))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # The reader of our output (head, less) has what it wanted.
        sys.stderr.close()
        raise typer.Exit(0) from None


def _hint(action: str) -> str:
    import difflib

    from libs.protocol import ACTIONS

    if action in ACTIONS:
        return ""
    near = difflib.get_close_matches(action, ACTIONS, n=1)
    return f"\nThere is no action of that name.{f' Did you mean {near[0]}?' if near else ''}"


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)
