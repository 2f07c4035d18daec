"""The plan of a turn's session: what a turn finds, and what its end makes of it (runtime.md, section 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from seed.sessions.v1 import types_pb2

from libs.store import Row
from services.runs.domain import obligations
from services.runs.domain import plan as plans
from services.runs.store.family import Family
from services.runs.worker.log import SessionLog

if TYPE_CHECKING:
    from services.runs.worker.claim import Parts


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


async def marked(family: Family, row: Row, plan: plans.Plan | None, now: int) -> plans.Plan | None:
    """The plan with what delegated runs have done since it was read."""
    if plan is None or plans.settled(plan):
        return plan
    return plans.resolved(plan, await family.steps(row["session_id"], row["root_run_id"]), now)


async def settle(parts: Parts, log: SessionLog, row: Row, plan: plans.Plan | None, *, succeeded: bool) -> None:
    """Running steps end with the last that works in the session, pending ones stay.

    A settled plan is kept with its run.
    """
    if plan is None:
        return
    if any(step.get("status") == "running" for step in plan.get("steps", ())):
        if await parts.family.live_beside(row["session_id"], row["id"]):
            return
        work = await parts.family.steps(row["session_id"], row["root_run_id"])
        after = obligations.settled_after(plans.resolved(plan, work, parts.now()), succeeded, parts.now(), work.live)
        if after != plan:
            await log.set_plan(after)
        plan = after
    if plans.settled(plan) and plan.get("ownerRunId") == row["id"]:
        await parts.queue.store_plan(row["id"], row["attempt"], plan)
