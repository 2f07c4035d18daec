"""The verbs of this server: every form of addresses that it serves, and the callables behind `call`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from libs.rpc import Peer
from libs.store import Row
from services.runs.providers.contract import ToolSpec
from services.runs.verbs.attachments import Attachments
from services.runs.verbs.dispatch import Verbs
from services.runs.verbs.itself import Itself
from services.runs.verbs.memory import Memory
from services.runs.verbs.runs import Runs
from services.runs.verbs.specs import CALL, read_spec, write_spec
from services.runs.verbs.threads import Threads
from services.runs.verbs.tools import Executor, Tools
from services.runs.verbs.triggers import Triggers

READABLE = (Memory, Tools, Triggers, Itself, Attachments, Threads, Runs)
WRITABLE = (Memory, Tools, Triggers)


def build_verbs(
    *,
    sessions: Peer,
    memory: Peer,
    triggers: Peer,
    run: Callable[[str], Awaitable[Row | None]],
    others: Sequence[ToolSpec],
    executors: Mapping[str, Executor],
) -> Verbs:
    """Wire the verbs to the services behind them.

    `run` reads a run, `others` are verbs that are executed elsewhere, `executors` run what `CALLABLES` names.
    """
    specs = (read_spec([one.form for one in READABLE]), write_spec([one.form for one in WRITABLE]), CALL)
    attachments, threads = Attachments(sessions), Threads(sessions)
    files, tools, wakers = Memory(memory, attachments), Tools(memory, executors, [*specs, *others]), Triggers(triggers)
    itself = Itself(files, wakers, threads)
    return Verbs((files, tools, wakers, itself, attachments, threads, Runs(run)), (files, tools, wakers), tools, specs)
