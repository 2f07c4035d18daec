"""`seed-agents ops runs` and `ops workers`: what runs, what waits and why, and who works."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .ops_calls import CALL_SECONDS, DataDirectory, shown, time_of, with_service

if TYPE_CHECKING:
    from libs.rpc import Peer

# Ids are to be copied: a table that goes to a file or a pipe is as wide as it needs.
_WIDE = 220
_REASONS = {
    "no-worker": "no worker takes runs",
    "backoff": "its time has not come",
    "session-busy": "its session is busy",
    "hourly-limit": "its account has begun all it may within an hour",
    "background-limit": "its account executes all it may in the background",
    "account-limit": "its account executes all it may",
    "queued": "others go before it",
}

runs = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Runs of all accounts.")
workers = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Processes that execute runs.")

RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Rows of a page.")]
Page = Annotated[str, typer.Option("--page", help="Go on with this page: the token under the one before.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@runs.command("list")
def runs_list(
    status: Annotated[
        list[str] | None,
        typer.Option(help="queued, running, waiting, succeeded, failed or canceled; may be repeated."),
    ] = None,
    account: Annotated[str, typer.Option(help="Only of this account.")] = "",
    limit: Limit = 50,
    page: Page = "",
    as_json: AsJson = False,
    data_dir: DataDirectory = Path("data"),
) -> None:
    """List runs, newest first, and why those that are queued wait."""

    async def show(peer: Peer) -> None:
        from seed.runs.v1 import admin_pb2 as pb

        request = pb.RunsAdminServiceListRunsRequest(
            statuses=status or [], account=account, page_size=limit, page_token=page
        )
        answer = await peer.call(_stub(peer).ListRuns, request, timeout_s=CALL_SECONDS, retry=True)
        if as_json:
            return _print_json(answer)
        rows = [
            (
                item.run.id,
                _state(item),
                "background" if item.background else "interactive",
                _age(item.run.created_at),
                item.worker or "-",
                item.run.account,
                shown(item.run.title),
            )
            for item in answer.runs
        ]
        _print_table(("run", "status", "queue", "age", "worker", "account", "title"), rows)
        _print_more(answer.next_page_token)

    with_service("runs", data_dir, show)


@runs.command("show")
def runs_show(run: RunId, as_json: AsJson = False, data_dir: DataDirectory = Path("data")) -> None:
    """Show one run: where it stands and why it waits."""

    async def show(peer: Peer) -> None:
        from seed.runs.v1 import admin_pb2 as pb

        request = pb.ExplainRunRequest(run_id=run)
        answer = await peer.call(_stub(peer).ExplainRun, request, timeout_s=CALL_SECONDS, retry=True)
        if as_json:
            return _print_json(answer)
        item, plain = answer.run, answer.run.run
        facts: list[tuple[str, str]] = [
            ("run", plain.id),
            ("status", plain.status + (" (cancel requested)" if item.cancel_requested else "")),
            *_why(item, answer.place),
            ("title", shown(plain.title)),
            ("account", plain.account),
            ("agent", plain.agent_id),
            ("session", plain.session_id),
            ("parent", plain.parent_run_id),
            ("root", plain.root_run_id if plain.root_run_id != plain.id else ""),
            ("queue", "background" if item.background else "interactive"),
            ("worker", item.worker),
            ("claims", f"{item.attempt}, failures {item.failures}"),
            ("created", time_of(plain.created_at)),
            ("started", time_of(plain.started_at) if plain.HasField("started_at") else ""),
            ("finished", time_of(plain.finished_at) if plain.HasField("finished_at") else ""),
            ("parked", shown(plain.wait.decode())),
            ("error", shown(plain.error.decode())),
        ]
        for name, value in facts:
            if value:
                typer.echo(f"{name:9} {value}")

    with_service("runs", data_dir, show)


@runs.command("requeue")
def runs_requeue(run: RunId, as_json: AsJson = False, data_dir: DataDirectory = Path("data")) -> None:
    """Let a run be claimed now: end its pause, or take it from the worker that holds it."""

    async def requeue(peer: Peer) -> None:
        from seed.runs.v1 import admin_pb2 as pb

        request = pb.RequeueRunRequest(run_id=run)
        answer = await peer.call(_stub(peer).RequeueRun, request, timeout_s=CALL_SECONDS)
        if as_json:
            return _print_json(answer)
        typer.echo(f"{answer.run.run.id} is {_state(answer.run)}")

    with_service("runs", data_dir, requeue)


@runs.command("cancel")
def runs_cancel(run: RunId, as_json: AsJson = False, data_dir: DataDirectory = Path("data")) -> None:
    """Cancel a run and all that it delegated."""

    async def cancel(peer: Peer) -> None:
        from seed.runs.v1 import admin_pb2 as pb

        request = pb.RunsAdminServiceCancelRunRequest(run_id=run)
        answer = await peer.call(_stub(peer).CancelRun, request, timeout_s=CALL_SECONDS)
        if as_json:
            return _print_json(answer)
        if not answer.ended and not answer.asked:
            typer.echo("nothing was live")
        else:
            typer.echo(f"canceled {answer.ended}, being stopped by their workers {answer.asked}")

    with_service("runs", data_dir, cancel)


@runs.command("queue")
def runs_queue(
    accounts: Annotated[int, typer.Option(min=1, max=1000, help="How many accounts to show.")] = 20,
    as_json: AsJson = False,
    data_dir: DataDirectory = Path("data"),
) -> None:
    """Count what is queued, executed and parked, and tell how old the oldest is; busiest accounts first."""

    async def show(peer: Peer) -> None:
        from seed.runs.v1 import admin_pb2 as pb

        request = pb.GetQueueRequest(accounts=accounts)
        answer = await peer.call(_stub(peer).GetQueue, request, timeout_s=CALL_SECONDS, retry=True)
        if as_json:
            return _print_json(answer)
        rows = [
            (
                depth.account or "all",
                "background" if depth.background else "interactive",
                depth.status,
                str(depth.runs),
                _age(depth.oldest_created_at),
            )
            for depth in (*answer.totals, *answer.accounts)
        ]
        _print_table(("account", "queue", "status", "runs", "oldest"), rows)

    with_service("runs", data_dir, show)


@workers.command("list")
def workers_list(
    limit: Limit = 50, page: Page = "", as_json: AsJson = False, data_dir: DataDirectory = Path("data")
) -> None:
    """List the workers, and what each held at its last heartbeat."""

    async def show(peer: Peer) -> None:
        from seed.runs.v1 import admin_pb2 as pb

        request = pb.ListWorkersRequest(page_size=limit, page_token=page)
        answer = await peer.call(_stub(peer).ListWorkers, request, timeout_s=CALL_SECONDS, retry=True)
        if as_json:
            return _print_json(answer)
        rows = [
            (
                worker.id,
                "lost" if not worker.alive else "draining" if worker.draining else "working",
                f"{worker.held}/{worker.slots}",
                _age(worker.started_at),
                _age(worker.seen_at),
            )
            for worker in answer.workers
        ]
        _print_table(("worker", "state", "held", "up", "seen"), rows)
        _print_more(answer.next_page_token)

    with_service("runs", data_dir, show)


@workers.command("drain")
def workers_drain(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Id of a worker.")],
    resume: Annotated[bool, typer.Option("--resume", help="Let it claim again instead.")] = False,
    as_json: AsJson = False,
    data_dir: DataDirectory = Path("data"),
) -> None:
    """Let a worker claim no more; it finishes what it holds. Then it can be stopped without disturbing anybody."""

    async def drain(peer: Peer) -> None:
        from seed.runs.v1 import admin_pb2 as pb

        request = pb.DrainWorkerRequest(worker_id=worker, resume=resume)
        answer = await peer.call(_stub(peer).DrainWorker, request, timeout_s=CALL_SECONDS)
        if as_json:
            return _print_json(answer)
        will = "claims again" if resume else f"claims no more, {answer.worker.held} runs to finish"
        typer.echo(f"{answer.worker.id} {will}")

    with_service("runs", data_dir, drain)


def _stub(peer: Peer) -> Any:
    from seed.runs.v1 import admin_pb2_grpc

    return peer.stub(admin_pb2_grpc.RunsAdminServiceStub)


def _state(item: Any) -> str:
    if not item.HasField("waiting"):
        return item.run.status
    reason = item.waiting.reason
    return "queued" if reason == "queued" else f"queued: {reason}"


def _why(item: Any, place: int) -> list[tuple[str, str]]:
    if not item.HasField("waiting"):
        return []
    waiting = item.waiting
    text = f"{waiting.reason}: {_REASONS.get(waiting.reason, 'see the release notes')}"
    if place:
        text += f", place {place}"
    if waiting.behind_run_id:
        text += f", run {waiting.behind_run_id}"
    if waiting.until:
        text += f", until {time_of(waiting.until)}"
    return [("waits", text)]


def _age(since_ms: int) -> str:
    seconds = max(0, int(time.time() - since_ms / 1000))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(name, overflow="fold", justify="right" if name in ("runs", "held") else "left")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDE)
    console.print(table)


def _print_more(token: str) -> None:
    if token:
        typer.echo(f"more: --page {token}")


def _print_json(message: Any) -> None:
    typer.echo(json.dumps(_plain(message), ensure_ascii=False))


def _plain(value: Any) -> Any:
    """A message as JSON has it: documents are spelled out, absent fields left out."""
    if isinstance(value, bytes):
        return json.loads(value) if value else None
    if not hasattr(value, "DESCRIPTOR"):
        return value
    fields: dict[str, Any] = {}
    for field in value.DESCRIPTOR.fields:
        content = getattr(value, field.name)
        if field.has_presence:
            if value.HasField(field.name):
                fields[field.json_name] = _plain(content)
        elif isinstance(content, str | int | bytes | float):
            fields[field.json_name] = _plain(content)
        else:
            fields[field.json_name] = [_plain(item) for item in content]
    return fields
