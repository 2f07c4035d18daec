"""The plan of a turn's session: what a turn finds, and what its end makes of it (runtime.md, section 8)."""

from __future__ import annotations

from typing import Any

import msgspec
from seed.sessions.v1 import types_pb2

from libs.store import Row
from services.runs.domain import obligations
from services.runs.domain import plan as plans
from services.runs.worker.claim import Parts
from services.runs.worker.log import SessionLog


async def current(parts: Parts, log: SessionLog, run_id: str, session: types_pb2.Session) -> plans.Plan | None:
    """The live plan; one that another run has settled is retired to it."""
    if not session.plan:
        return None
    plan: dict[str, Any] = msgspec.json.decode(session.plan)
    if plans.is_history(plan, run_id):
        await parts.queue.ensure_plan(session.id, str(plan.get("ownerRunId", "")), plan)
        await log.set_plan(None)
        return None
    return plan


async def settle(parts: Parts, log: SessionLog, row: Row, plan: plans.Plan | None, *, succeeded: bool) -> None:
    """Running steps end with the session's last run, pending ones stay; a settled plan is kept with its run."""
    if plan is None:
        return
    if any(step.get("status") == "running" for step in plan.get("steps", ())):
        if await parts.family.live_beside(row["session_id"], row["id"]):
            return
        plan = obligations.settled_after(plan, succeeded, parts.now())
        await log.set_plan(plan)
    if plans.settled(plan) and plan.get("ownerRunId") == row["id"]:
        await parts.queue.store_plan(row["id"], row["attempt"], plan)
