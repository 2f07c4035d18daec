"""Giving the results of delegated runs to the calls that asked for them."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from seed.sessions.v1 import turns_pb2, turns_pb2_grpc

from libs import telemetry
from libs.errors import NotFound, SeedError
from libs.rpc import Peer
from libs.store import Row
from services.runs.domain import delegate
from services.runs.store.family import Family
from services.runs.store.tables import TERMINAL

log = telemetry.get_logger("answers")

_EVERY_S = 1.0
"""How often unanswered results are looked for without a hint: a worker may have died before it gave one."""


class Answers:
    """Delivers each result once: to the parent's log, then to the parent's row. `wake()` looks now."""

    def __init__(self, family: Family, sessions: Peer) -> None:
        self._family, self._peer = family, sessions
        self._stub = sessions.stub(turns_pb2_grpc.TurnsServiceStub)
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for results now."""
        self._wake.set()

    async def deliver(self) -> int:
        """Deliver what there is; returns how many parents may go on."""
        resumed = 0
        for child in await self._family.unanswered():
            try:
                resumed += await self._one(child)
            except (SeedError, OSError) as e:
                log.warning("result not delivered yet", run=child["id"], error=type(e).__name__)
            except Exception as e:  # one that cannot be delivered must not keep others from it
                log.error("result not delivered", run=child["id"], error=type(e).__name__, exc_info=e)
        return resumed

    async def wait(self) -> None:
        """Until there may be something to deliver."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), _EVERY_S)
        self._wake.clear()

    async def _one(self, child: Row) -> bool:
        if child["parent_tool_call_id"] is None:
            await self._resolve(child)
        elif child["parent_status"] not in TERMINAL:
            await self._answer(child)
        parent = await self._family.answered(child)
        return parent is not None and parent["status"] == "queued"

    async def _answer(self, child: Row) -> None:
        told = delegate.answer(child["status"], child["id"], child["session_id"], child["output"], child["error"])
        call = child["parent_tool_call_id"]
        payload = {"type": "tool_result", "toolCallId": call, "name": "delegate", "output": told}
        step = child["plan_step_id"] if await self._step_done(child) else ""
        request = turns_pb2.AnswerCallRequest(
            run_id=child["parent_run_id"],
            child_run_id=child["id"],
            tool_call_id=call,
            payload=msgspec.json.encode(payload),
            resolve_step_id=step,
        )
        # The parent's session is gone: nobody is left to be told.
        with contextlib.suppress(NotFound):
            await self._peer.call(self._stub.AnswerCall, request, retry=True)

    async def _step_done(self, child: Row) -> bool:
        """Whether all runs of the tree that work on the child's plan step have succeeded."""
        if not child["plan_step_id"] or child["parent_session"] is None:
            return False
        work = await self._family.steps(child["parent_session"], child["root_run_id"])
        return (child["plan_step_id"], child["step_label"] or "") in work.done

    async def _resolve(self, child: Row) -> None:
        """A detached child answers nobody, but what it was started for is done, whether or not its parent is over."""
        if not await self._step_done(child):
            return
        request = turns_pb2.ResolveStepRequest(
            run_id=child["parent_run_id"], step_id=child["plan_step_id"], step_label=child["step_label"] or ""
        )
        with contextlib.suppress(NotFound):
            await self._peer.call(self._stub.ResolveStep, request, retry=True)
