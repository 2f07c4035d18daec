"""What people do with verbs: begun in sessions, executed here, answered there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from seed.sessions.v1 import types_pb2, user_actions_pb2_grpc
from seed.sessions.v1 import user_actions_pb2 as ua

from libs import signatures, telemetry, wire
from libs.errors import SeedError
from libs.protocol import json_bytes
from libs.rpc import Caller, Peer
from libs.store import Database
from services.runs.domain import grants
from services.runs.domain.verbs import VerbError
from services.runs.verbs.contract import Actor
from services.runs.verbs.dispatch import Verbs

log = telemetry.get_logger("runs-api")

ACTION_S = 600.0
"""What one use of a verb may take."""
_ANSWER_S = 60.0
_STOP_S = 5.0


class UserActions:
    """Executes verbs for people. `run_leases()` must run beside it: it says in sessions which are still executed."""

    def __init__(self, sessions: Peer, db: Database, verbs: Verbs) -> None:
        self._sessions, self._db, self._verbs = sessions, db, verbs
        self._stub: Any = sessions.stub(user_actions_pb2_grpc.UserActionsServiceStub)
        self._running: dict[str, asyncio.Task[types_pb2.SessionEvent]] = {}
        self._lease_s = 15.0

    async def run(self, caller: Caller, session_id: str, verb: str, given: Any) -> types_pb2.SessionEvent:
        """Execute a verb with `given` (what is no object counts as empty) and return the event of its result.

        It goes on when the caller leaves. Raises NotFound, Forbidden, Conflict, Unavailable: then nothing was executed,
        but for the last.
        """
        arguments: dict[str, Any] = given if isinstance(given, dict) else {}
        begin = ua.BeginUserActionRequest(session_id=session_id, verb=verb, input=json_bytes(arguments))
        action = await self._sessions.call(
            self._stub.BeginUserAction,
            begin,
            account=caller.account,
            signer=caller.signer,
            signature=signatures.forwarded(),
        )
        self._lease_s = action.lease_ms / 1000
        task = asyncio.create_task(self._executed(action, verb, arguments), name=f"action-{action.tool_call_id}")
        self._running[action.tool_call_id] = task
        task.add_done_callback(lambda _: self._running.pop(action.tool_call_id, None))
        return await asyncio.shield(task)

    async def run_leases(self) -> None:
        """Renew the leases of what is executed, until canceled."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            if not self._running:
                continue
            request = ua.RenewUserActionsRequest(tool_call_ids=list(self._running))
            try:
                await self._sessions.call(self._stub.RenewUserActions, request, timeout_s=self._lease_s / 3)
            except SeedError as e:
                log.warning("actions of people not renewed", error=e.message)

    async def close(self) -> None:
        """Let what runs end within a moment. What does not is given up by sessions when its lease is over."""
        running = list(self._running.values())
        if running:
            await asyncio.wait(running, timeout=_STOP_S)
        for task in running:
            task.cancel()

    async def _executed(
        self, action: ua.BeginUserActionResponse, verb: str, arguments: dict[str, Any]
    ) -> types_pb2.SessionEvent:
        with contextlib.suppress(SeedError):
            # So that a repeat of the signed request gets this answer; that it acts once is what sessions sees to.
            async with self._db.transaction():
                pass
        definition: Any = wire.decode(action.definition)
        tools = definition.get("tools")
        actor = Actor(
            owner=action.owner,
            agent_id=action.agent_id,
            session_id=action.session_id,
            definition=definition,
            callables=grants.callables(tools),
            publishes=grants.publishes(tools),
            by_user=True,
        )
        started = time.monotonic()
        payload: dict[str, Any] = {"type": "tool_result", "toolCallId": action.tool_call_id, "name": verb}
        try:
            async with asyncio.timeout(ACTION_S):
                payload["output"] = (await self._verbs.execute(verb, actor, arguments)).value
        except VerbError as e:
            payload["error"] = str(e)
        except TimeoutError:
            payload["error"] = f"It took longer than {ACTION_S:.0f} seconds and was given up"
        payload |= {"actor": "user", "meta": {"durationMs": int((time.monotonic() - started) * 1000)}}
        finish = ua.FinishUserActionRequest(
            tool_call_id=action.tool_call_id, session_id=action.session_id, payload=json_bytes(payload)
        )
        answer = await self._sessions.call(self._stub.FinishUserAction, finish, timeout_s=_ANSWER_S, retry=True)
        return answer.event
