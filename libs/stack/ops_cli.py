"""`seed-agents ops`: what an operator does to running services, over their internal listeners as `ops`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .ops_calls import CALL_SECONDS, DataDirectory, fail, shown, time_of, with_service
from .ops_runs import runs, workers

if TYPE_CHECKING:
    from libs.rpc import Peer

_PAGE = 500

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Operate running services.")
secrets = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Keys that protect secrets at rest.")
authorizations = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Keys that may sign for accounts.")
audit = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Who did what.")
app.add_typer(secrets, name="secrets")
app.add_typer(authorizations, name="authorizations")
app.add_typer(audit, name="audit")
app.add_typer(runs, name="runs")
app.add_typer(workers, name="workers")

Account = Annotated[str, typer.Option("--account", help="Only this account.")]


@secrets.command("rotate")
def secrets_rotate(
    data_dir: DataDirectory = Path("data"),
    batch: Annotated[int, typer.Option(min=1, max=1000, help="Data keys a transaction.")] = 200,
) -> None:
    """Wrap every data key again with the key ring's primary key, while everything goes on."""

    async def rotate(peer: Peer) -> None:
        from seed.secrets.v1 import admin_pb2 as pb
        from seed.secrets.v1 import admin_pb2_grpc as rpc

        stub, request, done, failed = (
            peer.stub(rpc.SecretsAdminServiceStub),
            pb.RewrapDataKeysRequest(batch=batch),
            0,
            0,
        )
        while True:
            answer = await peer.call(stub.RewrapDataKeys, request, timeout_s=CALL_SECONDS)
            done, failed = done + answer.rewrapped, failed + answer.failed
            if not answer.next_page_token:
                break
            request.page_token, request.primary = answer.next_page_token, answer.primary
        typer.echo(f"primary   {answer.primary}")
        typer.echo(f"rewrapped {done}")
        for key_id, count in sorted(answer.wrapped_by.items()):
            typer.echo(f"wrapped by {key_id}: {count}")
        if failed:
            fail(f"{failed} data keys do not open with the key ring and were left as they are; see the service's log")

    with_service("secrets", data_dir, rotate)


@authorizations.command("list")
def authorizations_list(data_dir: DataDirectory = Path("data"), account: Account = "") -> None:
    """Print which keys may sign for which accounts: account, signer, role, since when."""

    async def show(peer: Peer) -> None:
        from seed.secrets.v1 import admin_pb2 as pb
        from seed.secrets.v1 import admin_pb2_grpc as rpc

        stub = peer.stub(rpc.SecretsAdminServiceStub)
        request = pb.ListAuthorizationsRequest(account=account, page_size=_PAGE)
        while True:
            page = await peer.call(stub.ListAuthorizations, request, timeout_s=CALL_SECONDS, retry=True)
            for row in page.authorizations:
                typer.echo(f"{row.account}  {row.signer}  {row.role}  {time_of(row.created_at)}")
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    with_service("secrets", data_dir, show)


@authorizations.command("revoke")
def authorizations_revoke(account: str, signer: str, data_dir: DataDirectory = Path("data")) -> None:
    """Take a key's right to sign for an account away; it holds from the key's next request."""

    async def revoke(peer: Peer) -> None:
        from seed.secrets.v1 import admin_pb2 as pb
        from seed.secrets.v1 import admin_pb2_grpc as rpc

        stub = peer.stub(rpc.SecretsAdminServiceStub)
        request = pb.RevokeAuthorizationRequest(account=account, signer=signer)
        await peer.call(stub.RevokeAuthorization, request, timeout_s=CALL_SECONDS)
        typer.echo(f"{signer} may no longer sign for {account}")

    with_service("secrets", data_dir, revoke)


@audit.command("list")
def audit_list(
    data_dir: DataDirectory = Path("data"),
    account: Account = "",
    members: Annotated[bool, typer.Option("--members", help="Members and public access, in place of secrets.")] = False,
    of_runs: Annotated[
        bool, typer.Option("--runs", help="What operators did to runs and workers, in place of secrets.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Entries to print.")] = 100,
    before: Annotated[str, typer.Option(help="Go on before this entry: the token under a page.")] = "",
) -> None:
    """Print who did what to secrets, providers, identities and authorizations (or members, or runs), newest first."""
    if members and of_runs:
        fail("Choose one of --members and --runs")

    async def show(peer: Peer) -> None:
        from seed.audit.v1 import audit_pb2 as pb
        from seed.audit.v1 import audit_pb2_grpc as rpc

        stub = peer.stub(rpc.AuditServiceStub)
        request = pb.ListAuditRequest(account=account, page_size=limit, page_token=before)
        page = await peer.call(stub.ListAudit, request, timeout_s=CALL_SECONDS, retry=True)
        for entry in page.entries:
            typer.echo(_line(entry))
        if page.next_page_token:
            typer.echo(f"more: --before {page.next_page_token}")

    with_service("sessions" if members else "runs" if of_runs else "secrets", data_dir, show)


def _line(entry: Any) -> str:
    signer = f" with {entry.signer}" if entry.signer and entry.signer != entry.actor else ""
    who = f"{entry.actor or '-'}{signer} via {entry.via}"
    detail = f" ({shown(entry.detail)})" if entry.detail else ""
    return f"{time_of(entry.at)}  {entry.account or '-'}  {entry.action}  {shown(entry.subject)}{detail}  by {who}"
